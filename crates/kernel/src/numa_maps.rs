//! `/proc/PID/numa_maps`: the memory policy of a process, as far as that binds it to nodes (`numactl --membind`).
//!
//! Only the beginning of the file is read. The first line shows the policy of the process's first thread, unless the first VMA has
//! one of its own (mbind(2)); policies of single VMAs and of other threads are not looked for. Only a bind policy makes a process
//! stay on its nodes: the others take memory elsewhere where theirs have none left.
//! [numa(7)](https://man7.org/linux/man-pages/man7/numa.7.html),
//! [set_mempolicy(2)](https://man7.org/linux/man-pages/man2/set_mempolicy.2.html).
//!
//! Reading is dear: the kernel walks the page tables of each VMA that it writes a line about, some tens of milliseconds for a GiB on base
//! pages. What is read here has it write about the first VMA, and about the second where the first line is short: a read that
//! empties the kernel's buffer goes on with the next line. So whoever asks knows how large these two are.
//!
//! The kernel cuts a policy at 63 characters. To which nodes such a policy binds is not known here.

use crate::error::{Error, Result};
use crate::node::NodeSet;
use crate::process::Process;
use std::fs::File;
use std::io::Read;

/// The bytes of one read. The kernel writes lines until it has that much, and no line is shorter.
const PIECE: usize = 16;
/// The most that is read: an address, a policy as long as the kernel writes any, and what is around them are less.
const MOST: usize = 128; // tidy: allow(bytes)
/// The longest policy that the kernel writes (`show_numa_map` has a buffer of 64 bytes for it); longer ones are cut to that.
const LONGEST: usize = 63;

/// The nodes to which the policy of `process` binds its memory; `None` if it binds it to none, or is too long to tell.
///
/// # Errors
/// [`Error::Gone`], [`Error::Denied`], [`Error::Malformed`].
pub fn bound(process: &Process) -> Result<Option<NodeSet>> {
    let (name, mut text) = ("numa_maps", Vec::new());
    let mut file = File::from(process.open_file(name)?);
    while policy(&text).is_none() && text.len() < MOST {
        let mut piece = [0; PIECE];
        let count = file.read(&mut piece).map_err(|error| process.unread(name, &error))?;
        if count == 0 {
            // A process that is ending has no VMA any more.
            return Ok(None);
        }
        text.extend_from_slice(&piece[..count]);
    }
    parse(&text).ok_or_else(|| Error::malformed(&process.path(name), 1, "a policy", &text))
}

/// The second word of the first line, once it is complete.
fn policy(text: &[u8]) -> Option<&[u8]> {
    let mut words = text.split(|byte| matches!(byte, b' ' | b'\n'));
    let policy = words.nth(1)?;
    words.next().map(|_| policy)
}

/// Understands the beginning of the file: `55d0c0e00000 bind:0-1`, `… bind=static:1`, `… default`; `None` if it is no such text.
fn parse(text: &[u8]) -> Option<Option<NodeSet>> {
    let policy = policy(text)?;
    let mut parts = policy.splitn(2, |byte| *byte == b':');
    let mode = parts.next()?.split(|byte| *byte == b'=').next()?;
    if mode != b"bind" || policy.len() >= LONGEST {
        return Some(None);
    }
    NodeSet::parse(parts.next()?).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    fn nodes(list: &[u8]) -> Option<Option<NodeSet>> {
        Some(NodeSet::parse(list))
    }

    #[test]
    fn only_bind_policies_bind() {
        for unbound in ["default", "prefer:1", "interleave:0-1", "local", "weighted interleave:0"] {
            let line = format!("55c050fc0000 {unbound} file=/usr/bin/cat mapped=2\n");
            assert_eq!(parse(line.as_bytes()), Some(None), "{unbound}");
        }
        for (bound, list) in [("bind:1", "1"), ("bind=static:0,2-3", "0,2-3"), ("bind=a|b:4", "4")]
        {
            let line = format!("00400000 {bound} anon=1\n");
            assert_eq!(parse(line.as_bytes()), nodes(list.as_bytes()), "{bound}");
        }
    }

    #[test]
    fn the_first_line_need_not_be_whole() {
        assert_eq!(parse(b"00400000 bind:0-1"), None, "there may be more");
        assert_eq!(parse(b"00400000 bind:0-1 f"), nodes(b"0-1"));
        assert_eq!(parse(b"00400000 bind:0-1\n"), nodes(b"0-1"));
    }

    #[test]
    fn a_policy_that_may_be_cut_binds_to_no_node() {
        let whole = format!("bind=static:{}", "1,3,5,7,".repeat(8));
        for (length, known) in [(LONGEST, Some(None)), (LONGEST - 2, nodes(b"1,3,5,7"))] {
            let line = format!("7fff55c050fc0000 {} anon=1\n", &whole[..length]);
            assert!(line.len() <= MOST, "it is read whole");
            assert_eq!(parse(line.as_bytes()), known, "{line}");
        }
    }

    #[test]
    fn what_is_no_policy_is_none() {
        for bad in
            ["", "00400000", "00400000 bind \n", "00400000 bind:x \n", "00400000 bind:9-1 \n"]
        {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
        text::fuzz::never_panics(b"00400000 bind:0-1,4 anon=1\n", parse);
    }

    #[test]
    fn our_own_policy_reads() {
        let own = Process::current().expect("we have /proc");
        match own.open_file("numa_maps") {
            // A test may be run with a policy (`numactl --membind`).
            Ok(_) => {
                assert!(bound(&own).is_ok_and(|nodes| nodes.is_none_or(|nodes| !nodes.is_empty())))
            }
            // A kernel without nodes.
            Err(error) => assert!(bound(&own) == Err(error)),
        }
    }
}
