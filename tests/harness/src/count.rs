//! Counts the tests in cargo's output.

/// Tests that passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Tests that passed, or steps that count as one.
    pub passed: usize,
    /// Tests that failed, or steps that count as one.
    pub failed: usize,
}

impl Count {
    /// Adds another count.
    pub fn add(&mut self, other: Count) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// Counts the tests in the output of `cargo test`, over all its test programs.
///
/// A run that fails without a failed test (it was not built, it crashed) counts as one failure. So does a run
/// without any test.
pub fn tests(output: &str, succeeded: bool) -> Count {
    let mut count = Count::default();
    for line in output.lines() {
        // "test result: ok. 12 passed; 0 failed; 0 ignored; …"
        let Some(result) = line.strip_prefix("test result: ") else { continue };
        let number = |what: &str| {
            let part = result.split(['.', ';']).find_map(|part| part.trim().strip_suffix(what));
            part.and_then(|number| number.trim().parse::<usize>().ok()).unwrap_or(0)
        };
        count.add(Count { passed: number("passed"), failed: number("failed") });
    }
    if count.failed == 0 && (!succeeded || count.passed == 0) {
        count.failed = 1;
    }
    count
}

/// The names of failed tests.
pub fn failed_names(output: &str) -> impl Iterator<Item = &str> {
    output.lines().filter_map(|line| {
        let name = line.strip_prefix("test ")?;
        name.strip_suffix("FAILED")
            .or_else(|| name.strip_suffix("failed"))?
            .trim_end()
            .strip_suffix("...")
            .map(str::trim_end)
    })
}

/// What the test said when it failed, in one line; nothing where it said nothing.
pub fn reason<'a>(output: &'a str, name: &str) -> &'a str {
    let mut lines = output.lines();
    let heads = [format!("---- {name} ----"), format!("---- {name} stdout ----")];
    lines.find(|line| heads.iter().any(|head| line == head));
    let thread = |line: &str| line.starts_with("thread '");
    lines.map(str::trim).find(|line| !line.is_empty() && !thread(line)).unwrap_or_default()
}

/// Lines about tests that passed only when they ran again.
pub fn flaky(output: &str) -> impl Iterator<Item = &str> {
    output.lines().filter(|line| line.starts_with("flaky: "))
}

/// Lines about what a test left out, as it needs what this machine does not have.
pub fn unchecked(output: &str) -> impl Iterator<Item = &str> {
    output.lines().filter(|line| line.starts_with("not checked: "))
}

/// The last lines of output, without those about tests that passed.
pub fn tail(output: &str, lines: usize) -> Vec<&str> {
    let passed = |line: &str| line.starts_with("test ") && line.ends_with(" ok");
    let rest: Vec<&str> = output.lines().filter(|line| !passed(line)).collect();
    rest[rest.len().saturating_sub(lines)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
running 2 tests
test one ... ok
flaky: zoo/race on 6.1: no finding
test two ... FAILED

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

running 3 tests
test a b (quoted) ... ok
test result: ok. 3 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1.20s
";

    #[test]
    fn the_results_of_all_programs_add_up() {
        assert_eq!(super::tests(OUTPUT, false), Count { passed: 4, failed: 1 });
    }

    #[test]
    fn a_crash_and_an_empty_run_are_failures() {
        assert_eq!(super::tests("error: could not compile", false), Count { passed: 0, failed: 1 });
        let ok = "test result: ok. 3 passed; 0 failed; 0 ignored";
        assert_eq!(super::tests(ok, true), Count { passed: 3, failed: 0 });
        assert_eq!(super::tests(ok, false), Count { passed: 3, failed: 1 });
        let none = "test result: ok. 0 passed; 0 failed; 7 ignored";
        assert_eq!(super::tests(none, true), Count { passed: 0, failed: 1 });
    }

    #[test]
    fn failed_and_flaky_tests_are_named() {
        assert_eq!(failed_names(OUTPUT).collect::<Vec<_>>(), ["two"]);
        assert_eq!(flaky(OUTPUT).collect::<Vec<_>>(), ["flaky: zoo/race on 6.1: no finding"]);
    }

    #[test]
    fn the_reason_is_what_the_test_said_first() {
        let mimic = "---- a on b ----\nno finding\nmore\n";
        assert_eq!(reason(mimic, "a on b"), "no finding");
        let own =
            "---- two stdout ----\n\nthread 'two' (7) panicked at a.rs:1:2:\nassertion failed: x\nnote: b\n";
        assert_eq!(reason(own, "two"), "assertion failed: x");
        assert_eq!(reason(OUTPUT, "two"), "");
    }

    #[test]
    fn the_tail_leaves_out_what_passed() {
        assert_eq!(tail("a\ntest one ... ok\nb\nc", 2), ["b", "c"]);
        assert_eq!(tail("a\ntest one ... ok\nb", 9), ["a", "b"]);
    }
}
