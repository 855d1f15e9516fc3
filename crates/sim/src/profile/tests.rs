//! Every profile is read, gives back what it was read from, and says what its paper says.

use super::*;
use crate::translation::Translator;
use superpage_units::{PageSize, VirtAddr};

fn text(name: &str) -> &'static str {
    BUILT_IN.iter().find(|(known, _)| *known == name).expect("there").1
}

fn said(text: &str) -> String {
    Profile::from_toml(text).expect_err("not a profile").to_string()
}

#[test]
fn every_profile_is_read_and_writes_itself() {
    for name in Profile::names() {
        let profile = Profile::named(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(profile.name, name);
        let written = profile.to_toml();
        assert_eq!(Profile::from_toml(&written).as_ref(), Ok(&profile), "{written}");
        // One line for each number.
        assert!(written.lines().count() < 80 && !written.contains(".value"), "{written}");
        let mut translator = Translator::new(&profile.geometry(), &profile.latencies());
        let cost = translator.access(VirtAddr(0), PageSize::Base);
        let memory = profile.cpu.frequency.value.cycles(profile.memory.latency.value);
        assert_eq!(cost.0, 4 * memory.0);
    }
}

#[test]
fn names_that_need_quotes_are_written_with_them() {
    let mut profile = Profile::named("emd").expect("built in");
    let device = profile.swap_device().clone();
    profile.device.insert("a drive \"x\".y\\\n".to_owned(), device);
    profile.machine = "a \"quoted\" name\nand a line".to_owned();
    assert_eq!(Profile::from_toml(&profile.to_toml()), Ok(profile));
}

#[test]
fn what_a_paper_says_is_marked_so() {
    let trident = Profile::named("trident").expect("built in");
    let shared = trident.tlb.second_shared.expect("a second level");
    assert_eq!((shared.geometry.entries(), shared.geometry.ways()), (1536, 12));
    assert_eq!((shared.source.as_str(), shared.basis), ("Trident, Table 1", Basis::Paper));
    assert_eq!(trident.guest.hypercall.value, Nanos(300));
    assert_eq!(trident.cpu.frequency.value, Hertz(2_300_000_000));
    assert_eq!(trident.memory.size.value, Bytes::from_gib(384));
    for haswell in ["graph", "xheap"] {
        let profile = Profile::named(haswell).expect("built in");
        assert_eq!(profile.tlb.second_gigantic, None);
    }
    let xheap = Profile::named("xheap").expect("built in");
    assert_eq!(xheap.swap_device().read_bandwidth.value, BytesPerSecond(14_000_000_000));
}

#[test]
fn another_name_is_answered_with_the_names() {
    assert_eq!(
        Profile::named("vax").expect_err("no such machine").to_string(),
        "there is no machine \"vax\"; choose one of emd, graph, quicksilver, trident, xheap"
    );
}

#[test]
fn what_is_wrong_is_said_in_a_sentence_with_its_line() {
    let good = text("trident");
    let line_of = |words: &str| 1 + good.lines().position(|l| l.starts_with(words)).expect("there");
    let change = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        said(&good.replacen(from, to, 1))
    };
    let cpu = line_of("[cpu]");
    for (from, to, sentence) in [
        (
            "sockets = ",
            "socks = ",
            format!(
                "line {}: unknown field `socks`, expected one of `frequency`, \
                 `hardware_threads`, `sockets`",
                line_of("sockets")
            ),
        ),
        ("frequency = {", "#", format!("line {cpu}: missing field `frequency`")),
        (
            "value = 2.3,",
            "value = \"fast\",",
            format!("line {}: invalid type: string \"fast\", expected f64", line_of("frequency")),
        ),
        (
            "unit = \"GHz\"",
            "unit = \"ns\"",
            format!("line {}: unit \"ns\", expected one of GHz, MHz, Hz", line_of("frequency")),
        ),
        (
            "value = 2.3,",
            "value = -1.0,",
            format!(
                "line {}: value -1 GHz, expected 0 or more and below 2^53",
                line_of("frequency")
            ),
        ),
        (
            "entries = 64, ways = 4",
            "entries = 48, ways = 4",
            format!(
                "line {}: 48 TLB entries in 4 ways make 12 sets, which is not a power of two",
                line_of("first_base")
            ),
        ),
        ("swap = \"nvme\"", "swap = \"x\"", "swap is \"x\", and there is no such device".into()),
        (
            "value = 2.7026,",
            "value = 0.0,",
            "a bandwidth of memory is 0, and nothing would ever be done".into(),
        ),
        ("value = 2.3,", "value = nan,", String::new()),
        ("[cpu]", "[cpu", String::new()),
    ] {
        let found = change(from, to);
        assert!(sentence.is_empty() || found == sentence, "{found}\n{sentence}");
        assert!(!found.is_empty() && !found.contains('\n'), "{found}");
    }
    assert!(said("").starts_with("line 1: missing field"), "{}", said(""));
}
