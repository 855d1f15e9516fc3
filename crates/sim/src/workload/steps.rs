//! Programs that work on more memory than there is: the same step over and over, each of which touches
//! pages that may have gone, so that each touch is made.

use super::{Counting, Part, Pattern};
use crate::machine::Content;

/// The same step, again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    /// How many, of all threads together. They are dealt to the threads in turn.
    pub count: u64,
    /// Cycles of a step, but for translation and faults: work and data caches.
    pub cycles: f64,
    /// The share of translation cycles that the processor cannot hide, 0 to 1.
    pub exposed: f64,
    /// What a step touches, in this order.
    pub touches: Vec<Touches>,
}

/// Touches of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Touches {
    /// Where to. A part gone over in sequence is shared out among the threads, a piece each.
    pub part: Part,
    /// Which page: the next ([`Pattern::Sequential`]), or that of an access drawn at random. A page
    /// touched is one look-up in the TLB, however many accesses to it that is.
    pub pattern: Pattern,
    /// [`Content::Data`] if it writes.
    pub content: Content,
    /// How many pages in a step; if it is not whole, a page more in some.
    pub per_step: f64,
    /// How many each stands for in the cost of translation.
    pub stands_for: f64,
    /// [`Counting::Each`] if pages of it may have gone. [`Counting::Sampled`] for what is touched so
    /// often that it stays: of that, only the touches of the thread whose TLB is simulated are made.
    pub made: Counting,
}
