//! The lines of a log, without what the console adds to them.

/// What the guest's init writes to the log before it loads a driver; the driver's name follows.
pub const MARK: &str = "guardrail: loading ";

/// The longest line that is read, in bytes. The rest of a longer one is dropped.
const MAX_LINE: usize = 1024;

/// Whether a log shows the load of a driver.
pub fn has_mark(log: &str) -> bool {
    log.lines().any(|line| text(line).starts_with(MARK))
}

/// The lines from the first driver's load on. Each has its text, and the driver that was loaded last.
pub(crate) fn since_load(log: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut driver = None;
    log.lines().map(text).filter_map(move |line| match line.strip_prefix(MARK) {
        Some(name) => {
            driver = Some(name.trim());
            None
        }
        None => driver.map(|driver| (line, driver)),
    })
}

/// Cuts off level, time and caller: `<4>[    3.141592][  T88] `. Leading blanks of the text stay, because a
/// frame of a stack has some.
fn text(line: &str) -> &str {
    let mut line = cut(line.trim_end());
    if let Some((level, rest)) = line.strip_prefix('<').and_then(|rest| rest.split_once('>'))
        && !level.is_empty()
        && level.bytes().all(|byte| byte.is_ascii_digit())
    {
        line = rest;
    }
    let time = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let caller = |text: &str| matches!(text.as_bytes(), [b'T' | b'C', digits @ ..] if digits.iter().all(u8::is_ascii_digit));
    let timed = bracketed(line, time);
    let called = timed.and_then(|rest| bracketed(rest, caller)).or(timed);
    called.map_or(line, |rest| rest.strip_prefix(' ').unwrap_or(rest))
}

/// What follows `[TEXT]`, where the text between the brackets is right.
fn bracketed(line: &str, right: impl Fn(&str) -> bool) -> Option<&str> {
    let (text, rest) = line.strip_prefix('[')?.split_once(']')?;
    let text = text.trim();
    (!text.is_empty() && right(text)).then_some(rest)
}

fn cut(line: &str) -> &str {
    let mut end = line.len().min(MAX_LINE);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    &line[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_lose_what_the_console_adds() {
        for line in [
            "[    3.141592] BUG: x",
            "[    3.141592][   T88] BUG: x\r",
            "<4>[    3.141592] BUG: x",
            "[ 1003.141592] [C1] BUG: x".replacen("] [", "][", 1).as_str(),
            "BUG: x",
        ] {
            assert_eq!(text(line), "BUG: x", "{line}");
        }
        assert_eq!(text("[    3.1]  f+0x1/0x2"), " f+0x1/0x2");
        for other in ["[ BUG: Invalid wait context ]", "[]", "<>", "[x", "<x>y", ""] {
            assert_eq!(text(other), other);
        }
    }

    #[test]
    fn long_lines_are_cut_between_characters() {
        assert_eq!(text(&"ä".repeat(MAX_LINE)).len(), MAX_LINE);
        assert_eq!(text(&format!("x{}", "ä".repeat(MAX_LINE))).len(), MAX_LINE - 1);
    }

    #[test]
    fn a_line_belongs_to_the_driver_that_was_loaded_last() {
        let log = "early\n[ 1.0] guardrail: loading one\na\n[ 2.0] guardrail: loading two\r\nb\nc\n";
        let lines: Vec<_> = since_load(log).collect();
        assert_eq!(lines, [("a", "one"), ("b", "two"), ("c", "two")]);
        assert_eq!(since_load("BUG: boot\n").count(), 0);
    }
}
