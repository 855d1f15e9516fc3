//! Tests of the metrics: what is counted, that labels stay few, the file and the listener. That
//! names and labels are those of the documentation is tested in `tests/documented_metrics.rs`.

use super::*;
use crate::status::{AnonymousMemory, Memory};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use superpage_units::{BasePages, Bytes, HugePages, Share};

fn entry(what: What, kind: &str, huge_pages: u64, base_pages: u64) -> Entry {
    let policy = Some("emd".to_owned());
    let (huge_pages, base_pages) = (HugePages(huge_pages), BasePages(base_pages));
    Entry { policy, huge_pages, base_pages, ..Entry::new(1, what, kind, "as a test says") }
}

fn value(metrics: &Metrics, series: &str) -> Option<f64> {
    let text = metrics.encode();
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    line.parse().ok()
}

#[test]
fn entries_are_counted_by_policy_and_cause() {
    let metrics = Metrics::new();
    metrics.take(&entry(What::Debloated, "densest", 3, 100));
    metrics.take(&entry(What::Debloated, "densest", 2, 50));
    metrics.take(&entry(What::Promoted, "threshold", 7, 10));
    metrics.take(&entry(What::Refused, "no-huge-page", 0, 0));
    metrics.take(&entry(What::LeftAlone, "shared", 4, 0));
    metrics.take(&entry(What::Started, "start", 9, 9));
    let expected = [
        ("superpage_debloated_huge_pages_total{policy=\"emd\",cause=\"densest\"}", 5.0),
        ("superpage_debloat_freed_bytes_total{policy=\"emd\",cause=\"densest\"}", 614_400.0),
        ("superpage_promoted_huge_pages_total{policy=\"emd\",cause=\"threshold\"}", 7.0),
        ("superpage_promotion_filled_bytes_total{policy=\"emd\"}", 40_960.0),
        ("superpage_promotions_refused_total{reason=\"no-huge-page\"}", 1.0),
        ("superpage_huge_pages_left_alone_total{reason=\"shared\"}", 4.0),
    ];
    for (series, count) in expected {
        assert_eq!(value(&metrics, series), Some(count), "{series} in\n{}", metrics.encode());
    }
}

#[test]
fn the_format_is_the_older_one_that_files_are_read_in() {
    let metrics = Metrics::new();
    metrics.take(&entry(What::Debloated, "densest", 3, 100));
    let text = metrics.encode();
    assert!(text.contains("# TYPE superpage_debloated_huge_pages_total counter\n"), "{text}");
    assert!(text.contains("# TYPE superpage_build_info gauge\n"), "{text}");
    assert!(text.contains("# TYPE superpage_promotion_seconds histogram\n"), "{text}");
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
    let kinds = ["counter", "gauge", "histogram"];
    for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
        assert!(kinds.iter().any(|kind| line.ends_with(kind)), "{line}");
    }
}

#[test]
fn labels_stay_few_whatever_comes() {
    let metrics = Metrics::new();
    for number in 0..1000 {
        metrics.take(&entry(What::Debloated, &format!("kind-{number}"), 1, 0));
    }
    metrics.take(&entry(What::Debloated, "a \"cause\"\nin words", 1, 0));
    let text = metrics.encode();
    let series =
        text.lines().filter(|line| line.starts_with("superpage_debloated_huge_pages")).count();
    assert!(series <= WORDS + 1, "{series} series");
    assert!(text.contains("cause=\"other\""), "{text}");
    assert!(!text.contains("in words"), "{text}");
}

#[test]
fn times_fall_into_buckets() {
    let metrics = Metrics::new();
    metrics.observe_collapse(Duration::from_micros(400));
    metrics.observe_collapse(Duration::from_millis(40));
    metrics.observe_wait(Duration::from_secs(100));
    assert_eq!(value(&metrics, "superpage_promotion_seconds_count"), Some(2.0));
    assert_eq!(value(&metrics, "superpage_promotion_seconds_bucket{le=\"0.0005\"}"), Some(1.0));
    assert_eq!(value(&metrics, "superpage_promotion_wait_seconds_bucket{le=\"+Inf\"}"), Some(1.0));
    assert_eq!(value(&metrics, "superpage_promotion_wait_seconds_sum"), Some(100.0));
}

#[test]
fn gauges_are_as_the_status_says_and_forget_what_is_gone() {
    let metrics = Metrics::new();
    let memory = |name: &str| Memory {
        name: name.to_owned(),
        used: Bytes(600),
        total: Bytes(1000),
        high: Share::percent(80),
        low: Share::percent(65),
    };
    let mut status = Status {
        watches: vec![memory("machine"), memory("/sys/fs/cgroup/a")],
        policies: vec![("ingens".to_owned(), 3)],
        anonymous: AnonymousMemory { gigantic: Bytes::from_gib(2), ..AnonymousMemory::default() },
        surveys: 12,
        pause_ms: 250.0,
        cpu_s: 1.5,
        ..Status::default()
    };
    metrics.set(&status);
    assert_eq!(value(&metrics, "superpage_memory_used_bytes{watch=\"machine\"}"), Some(600.0));
    let low = "superpage_memory_watermark_ratio{watch=\"machine\",mark=\"low\"}";
    assert_eq!(value(&metrics, low), Some(0.65));
    let gigantic = "superpage_anonymous_memory_bytes{page_size=\"gigantic\"}";
    assert_eq!(value(&metrics, gigantic), Some(2_147_483_648.0));
    assert_eq!(value(&metrics, "superpage_surveys_total"), Some(12.0));
    assert_eq!(value(&metrics, "superpage_promotion_pause_seconds"), Some(0.25));
    assert_eq!(value(&metrics, "superpage_daemon_cpu_seconds_total"), Some(1.5));
    assert_eq!(value(&metrics, "superpage_processes{policy=\"ingens\"}"), Some(3.0));
    status.watches.pop();
    status.policies.clear();
    metrics.set(&status);
    let text = metrics.encode();
    assert!(!text.contains("/sys/fs/cgroup/a") && !text.contains("ingens"), "{text}");
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(request.as_bytes()).expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn the_listener_answers_get_and_nothing_else() {
    let metrics = Arc::new(Metrics::new());
    let server = serve(Arc::clone(&metrics), SocketAddr::from(([127, 0, 0, 1], 0)))
        .expect("a free port of the loopback");
    let address = server.address();
    let answer = ask(address, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
    assert_eq!(body, metrics.encode());
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("\0\0\r\n\r\n", "400"),
    ] {
        let answer = ask(address, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
    }
    let head = ask(address, "HEAD /metrics?a=b HTTP/1.1\r\n\r\n");
    assert!(head.ends_with("Content-Length: 0\r\nConnection: close\r\n\r\n"), "{head}");
    drop(server);
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
}

#[test]
fn who_says_nothing_keeps_nobody_waiting() {
    let server = serve(Arc::new(Metrics::new()), SocketAddr::from(([127, 0, 0, 1], 0)))
        .expect("a free port of the loopback");
    let connect = || TcpStream::connect(server.address()).expect("it listens");
    let silent: Vec<TcpStream> = (0..128).map(|_| connect()).collect();
    // Ends in the middle of its request.
    connect().write_all(b"GET /met").expect("it is sent");
    // As many as were made at once may be more than the kernel keeps for a listener; they are taken in by now.
    std::thread::sleep(Duration::from_millis(100));
    let begun = std::time::Instant::now();
    for _ in 0..8 {
        let answer = ask(server.address(), "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    drop(silent);
}
