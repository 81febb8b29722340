//! What the guest reports on the progress channel (see `guest/init` for the lines).

use crate::error::printable;

/// The longest line that is read, in bytes; the rest of a longer one is dropped.
pub const MAX_LINE: usize = 1024;

/// One line of the progress channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The kernel runs our init.
    Booted,
    /// All is ready for the driver, and the guest waits to be saved.
    Waiting,
    /// The driver's init function returned.
    Loaded(String),
    /// A module could not be loaded, and why.
    LoadFailed(String),
    /// The driver bound this device.
    Bound(String),
    /// The driver bound no device.
    Unbound,
    /// A step began.
    Begin(String),
    /// A step ended well.
    Ok(String),
    /// A step that this driver does not support, and why.
    Skipped(String, String),
    /// A step failed, and why.
    Failed(String, String),
    /// The CPU with this number runs processes; reported every second where the run wants it.
    Alive(u8),
    /// A line that the user's program printed.
    Output(String),
    /// The guest asks the host to do something to the device.
    Ask(String),
    /// The driver's exit function returned.
    Unloaded(String),
    /// The workload ended; no more lines follow.
    Done,
}

impl Progress {
    /// Reads a line; `None` for anything that is not a line of progress.
    pub fn parse(line: &str) -> Option<Progress> {
        let line = line.trim().strip_prefix("guardrail: ")?;
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = printable(rest);
        let step = || {
            let (step, text) = rest.split_once(' ').unwrap_or((&rest, ""));
            (step.to_owned(), text.trim().to_owned())
        };
        Some(match word {
            "booted" => Progress::Booted,
            "waiting" => Progress::Waiting,
            "loaded" => Progress::Loaded(rest),
            "load-failed" => Progress::LoadFailed(rest),
            "bound" => Progress::Bound(rest),
            "unbound" => Progress::Unbound,
            "begin" => Progress::Begin(step().0),
            "ok" => Progress::Ok(step().0),
            "skipped" => {
                let (step, why) = step();
                Progress::Skipped(step, why)
            }
            "failed" => {
                let (step, why) = step();
                Progress::Failed(step, if why.is_empty() { "no reason given".into() } else { why })
            }
            "alive" => Progress::Alive(rest.parse().ok()?),
            "output" => Progress::Output(rest),
            "ask" => Progress::Ask(rest),
            "unloaded" => Progress::Unloaded(rest),
            "done" => Progress::Done,
            _ => return None,
        })
    }
}

impl std::fmt::Display for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Progress::Booted => write!(f, "the kernel has booted"),
            Progress::Waiting => write!(f, "the guest waits to be saved"),
            Progress::Loaded(driver) => write!(f, "loaded {driver}"),
            Progress::LoadFailed(why) => write!(f, "loading failed: {why}"),
            Progress::Bound(device) => write!(f, "bound {device}"),
            Progress::Unbound => write!(f, "bound no device"),
            Progress::Begin(step) => write!(f, "{step} …"),
            Progress::Ok(step) => write!(f, "{step} ok"),
            Progress::Skipped(step, why) => write!(f, "{step} skipped: {why}"),
            Progress::Failed(step, why) => write!(f, "{step} failed: {why}"),
            Progress::Alive(cpu) => write!(f, "CPU {cpu} is alive"),
            Progress::Output(line) => write!(f, "| {line}"),
            Progress::Ask(what) => write!(f, "asked for {what}"),
            Progress::Unloaded(driver) => write!(f, "unloaded {driver}"),
            Progress::Done => write!(f, "done"),
        }
    }
}

/// Cuts a byte stream into lines of bounded length.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    line: Vec<u8>,
}

impl Lines {
    /// Feeds bytes; calls `each` for every whole line.
    pub(crate) fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(&str)) {
        for byte in bytes {
            match byte {
                b'\n' => {
                    each(String::from_utf8_lossy(&self.line).trim_end_matches('\r'));
                    self.line.clear();
                }
                _ if self.line.len() < MAX_LINE => self.line.push(*byte),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_and_foreign_ones_ignored() {
        assert_eq!(Progress::parse("guardrail: booted\r"), Some(Progress::Booted));
        assert_eq!(
            Progress::parse("guardrail: failed ping no answer"),
            Some(Progress::Failed("ping".into(), "no answer".into()))
        );
        assert_eq!(Progress::parse("guardrail: ok read"), Some(Progress::Ok("read".into())));
        assert_eq!(Progress::parse("guardrail: ask link-up"), Some(Progress::Ask("link-up".into())));
        assert_eq!(Progress::parse("guardrail: alive 1"), Some(Progress::Alive(1)));
        assert_eq!(Progress::parse("guardrail: output a  b"), Some(Progress::Output("a  b".into())));
        assert_eq!(Progress::parse("guardrail: alive x"), None);
        assert_eq!(Progress::parse("guardrail: dance"), None);
        assert_eq!(Progress::parse("done"), None);
        assert_eq!(Progress::parse("guardrail: loaded \x1b[2Jx"), Some(Progress::Loaded("[2Jx".into())));
    }

    #[test]
    fn a_stream_is_cut_into_bounded_lines() {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        lines.feed(b"guardrail: bo", |line| seen.push(line.to_owned()));
        lines.feed(b"oted\r\n\xff\n", |line| seen.push(line.to_owned()));
        lines.feed(&vec![b'x'; 5000], |line| seen.push(line.to_owned()));
        lines.feed(b"\n", |line| seen.push(line.to_owned()));
        assert_eq!(seen[0], "guardrail: booted");
        assert_eq!(seen[2].len(), MAX_LINE);
    }
}
