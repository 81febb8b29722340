//! The orders that the analysis process receives from the supervisor during a run.

use crate::analysis::wire::{GuestEnd, Order, receive};
use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// The orders of the supervisor, in the order of their arrival.
pub struct Inbox {
    heard: Receiver<Order>,
    ended: Option<GuestEnd>,
    cut: Arc<AtomicBool>,
}

impl Inbox {
    /// Listens on a thread of its own, which ends with the supervisor.
    pub fn listen(mut input: impl BufRead + Send + 'static) -> Inbox {
        let (sender, heard) = mpsc::channel();
        let cut = Arc::new(AtomicBool::new(false));
        let cuts = Arc::clone(&cut);
        std::thread::spawn(move || {
            while let Ok(Some(order)) = receive(&mut input) {
                // Readers of the log look at this flag alone.
                cuts.fetch_or(order == Order::Cut, Relaxed);
                if sender.send(order).is_err() {
                    break;
                }
            }
        });
        Inbox { heard, ended: None, cut }
    }

    /// Becomes true where the log is to be read no further.
    pub fn cut(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.cut)
    }

    /// Waits until the guest was saved at a finding. False where the guest has ended, or nobody answers in
    /// time.
    pub fn saved(&mut self, finding: &str, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            match self.heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Order::GoOn(id)) if id == finding => return true,
                // This answers an earlier finding, for which nobody waits anymore.
                Ok(Order::GoOn(_)) => {}
                Ok(Order::Cut) => return false,
                Ok(Order::Ended(end)) => {
                    self.ended = Some(*end);
                    return false;
                }
                Err(_) => return false,
            }
        }
    }

    /// Waits for the end of the guest; `None` where the supervisor has ended.
    pub fn ended(mut self) -> Option<GuestEnd> {
        self.ended.take().or_else(|| {
            self.heard.iter().find_map(|order| match order {
                Order::Ended(end) => Some(*end),
                Order::GoOn(_) | Order::Cut => None,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::wire::send;
    use guardrail_report::Run;
    use std::io;

    fn inbox(said: &[Order]) -> Inbox {
        let mut bytes = Vec::new();
        said.iter().for_each(|order| send(&mut bytes, order).unwrap());
        Inbox::listen(io::Cursor::new(bytes))
    }

    #[test]
    fn the_analysis_goes_on_where_the_finding_was_saved_and_nowhere_else() {
        let long = Duration::from_secs(60);
        let go_on = |id: &str| Order::GoOn(id.to_owned());
        let run = || Run { outcome: "completed".into(), ..Run::default() };
        let ended = || Order::Ended(Box::new(GuestEnd { run: run(), kernel_log: None }));
        let outcome = |inbox: Inbox| inbox.ended().map(|end| end.run.outcome);
        // A late answer for an earlier finding is skipped.
        let mut heard = inbox(&[go_on("a"), go_on("b"), ended()]);
        assert!(heard.saved("b", long));
        assert_eq!(outcome(heard).as_deref(), Some("completed"));
        // A guest that has ended is not saved, and its outcome is not lost.
        let mut heard = inbox(&[ended(), go_on("a")]);
        assert!(!heard.saved("a", long));
        assert_eq!(outcome(heard).as_deref(), Some("completed"));
        // Nor is one whose log is to be read no further.
        let mut heard = inbox(&[Order::Cut, ended()]);
        assert!(!heard.saved("a", long) && heard.cut().load(Relaxed));
        assert_eq!(outcome(heard).as_deref(), Some("completed"));
        // A guest whose supervisor has ended is not saved either.
        let mut heard = inbox(&[]);
        assert!(!heard.saved("a", long) && !heard.cut().load(Relaxed));
        assert_eq!(heard.ended(), None);
    }
}
