//! The log of a running guest, which an order of the supervisor cuts.

use guardrail_trace::log::MergedReader;
use guardrail_trace::source::{Live, Source, SourceEnd, SourceError, Step};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// How long the log may be silent before its reader looks after other things.
const IDLE: Duration = Duration::from_millis(500);

/// A log that is read to its end, or until it is cut.
pub struct RunLog {
    live: Live,
    cut: Arc<AtomicBool>,
}

impl RunLog {
    /// A log that ends where `cut` becomes true.
    pub fn new(reader: MergedReader, cut: Arc<AtomicBool>) -> RunLog {
        RunLog { live: Live { reader, timeout: IDLE }, cut }
    }
}

impl Source for RunLog {
    fn step(&mut self) -> Result<Step<'_>, SourceError> {
        if self.cut.load(Relaxed) {
            let ticket = self.live.reader.next_ticket();
            return Ok(Step::End(SourceEnd::Cut(format!(
                "the analysis was interrupted before segment {ticket}"
            ))));
        }
        self.live.step()
    }

    fn checked(&mut self) {
        self.live.checked();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_trace::log::Log;

    #[test]
    fn a_log_is_read_until_it_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::create(folder.path().join("log"), 1, 1 << 12).unwrap();
        let mut writer = log.writer(0).unwrap();
        for word in 0..2 {
            writer.begin();
            writer.push(word);
            writer.close();
        }
        let cut = Arc::new(AtomicBool::new(false));
        let mut source = RunLog::new(MergedReader::attach(&log).unwrap(), Arc::clone(&cut));
        assert!(matches!(source.step().unwrap(), Step::Segment(_)));
        cut.store(true, Relaxed);
        let Step::End(SourceEnd::Cut(why)) = source.step().unwrap() else { panic!("it goes on") };
        assert_eq!(why, "the analysis was interrupted before segment 1");
    }
}
