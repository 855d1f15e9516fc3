//! A real Redis server under load: started for us alone, filled, asked, and every answer checked.
//!
//! Two ways to ask ([`Client::closed`], [`Client::open`]): closed-loop, always the same number of requests under
//! way, for throughput; open-loop, requests due at random times whatever the answers do, and each
//! answer's latency counted from when its request was due, so that a server that stands still pays
//! for all that it keeps waiting. Nothing here decides about pages or settings.

mod client;
mod items;
mod redis;
mod resp;

pub use client::{Client, Latencies, Mix, Window};
pub use items::{Items, Sizes};
pub use redis::Redis;
