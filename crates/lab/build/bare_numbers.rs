//! Finds constants that are bare numbers in the sources of the simulated experiments. The build script and the tests of the library use it.

/// The types of a bare number.
const NUMBERS: [&str; 16] = [
    "f32",
    "f64",
    "i32",
    "i64",
    "u8",
    "u16",
    "u32",
    "u64",
    "usize",
    "Bytes",
    "Nanos",
    "BasePages",
    "HugePages",
    "Share",
    "Hertz",
    "Cycles",
];

/// The comment at the end of the line of a number that is no `Constant`, before the reason.
pub(crate) const LET_OFF: &str = "// not a Constant: ";

/// The lines of a source file, counted from 1, whose constant is a bare number, each with its name. Several numbers at once are the
/// axis of a figure, or what a paper found; the module of tests, which ends a file, is not looked at.
pub(crate) fn find(text: &str) -> Vec<(usize, &str)> {
    let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default().lines();
    let numbers = (1..).zip(code).filter(|(_, line)| !line.contains(LET_OFF));
    numbers.filter_map(|(at, line)| Some((at, bare(line)?))).collect()
}

/// The name of a constant that is a bare number.
fn bare(line: &str) -> Option<&str> {
    let code = line.split("//").next()?;
    let (_, after) = code.split_once("const ").or_else(|| code.split_once("static "))?;
    let (name, after) = after.split_once(": ")?;
    let (kind, _) = after.split_once('=')?;
    (!name.contains('(') && NUMBERS.contains(&kind.trim())).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn a_bare_number_is_found() {
        assert_eq!(find("const MEMORY: Bytes = Bytes::from_gib(32);"), [(1, "MEMORY")]);
        assert_eq!(find("//! A.\n    pub(super) const CYCLES: f64 = 3.0;"), [(2, "CYCLES")]);
    }

    #[test]
    fn other_constants_are_none() {
        for line in [
            "static MEMORY: Constant<Bytes> =",
            "const NAME: &str = \"a\";",
            "const fn cycles(self) -> f64 {",
            "const FRACTIONS: [f64; 2] = [0.2, 0.4];",
            "const FASTER: f64 = 1.15; // not a Constant: the paper's number",
            "// const FASTER: f64 = 1.15;",
            "fn f() {}\n#[cfg(test)]\nmod tests {\n    const FASTER: f64 = 1.15;",
        ] {
            assert!(find(line).is_empty(), "{line}");
        }
    }
}
