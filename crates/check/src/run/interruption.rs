//! What the report of a run says where the user interrupted it.

use guardrail_report::Run;
use guardrail_vm::run::{Finished, Outcome};

/// The note on a guest that the user ended; `None` where it ended otherwise.
pub fn of_guest(finished: &Finished) -> Option<String> {
    let note = || {
        let (seconds, step) = (finished.wall.as_secs_f64(), finished.last_step());
        format!(
            "the run was interrupted after {seconds:.1} s, in '{step}'; what would have followed was not checked"
        )
    };
    (finished.outcome == Outcome::Interrupted).then(note)
}

/// Completes the description of a run that was interrupted, once the analysis has ended. `cut` is why the log was
/// not read to its end.
pub fn complete(run: &mut Run, cut: Option<&str>) {
    let interrupted = Outcome::Interrupted;
    if run.outcome != interrupted.word() {
        run.notes.push(format!("the run was interrupted when its outcome, {}, was known", run.outcome));
    }
    let Some(why) = cut else { return };
    run.notes.push(format!("the log was not read to its end: {why}; what follows there was not checked"));
    // Nothing was missing but the analysis.
    if run.outcome == Outcome::Completed.word() {
        run.outcome = interrupted.word().to_owned();
        run.detail = Some(interrupted.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_vm::progress::Progress;
    use std::path::PathBuf;
    use std::time::Duration;

    fn finished(outcome: Outcome) -> Finished {
        Finished {
            outcome,
            progress: vec![(Duration::ZERO, Progress::Begin("ping".into()))],
            wall: Duration::from_millis(12_340),
            console: PathBuf::new(),
            console_cut: None,
            trouble: String::new(),
            cut_at: None,
            cut_took: None,
            cut_by_force: false,
        }
    }

    #[test]
    fn a_guest_that_was_interrupted_says_when() {
        assert_eq!(
            of_guest(&finished(Outcome::Interrupted)).unwrap(),
            "the run was interrupted after 12.3 s, in 'ping'; what would have followed was not checked"
        );
        assert_eq!(of_guest(&finished(Outcome::Completed)), None);
    }

    fn completed(outcome: &str, cut: Option<&str>) -> (String, Vec<String>) {
        let mut run = Run { outcome: outcome.into(), ..Run::default() };
        complete(&mut run, cut);
        (run.outcome, run.notes)
    }

    #[test]
    fn a_run_whose_log_was_not_read_to_its_end_is_not_complete() {
        let late = |outcome| format!("the run was interrupted when its outcome, {outcome}, was known");
        let unread = || "the log was not read to its end: why; what follows there was not checked".to_owned();
        assert_eq!(completed("interrupted", None), ("interrupted".into(), vec![]));
        assert_eq!(completed("completed", None), ("completed".into(), vec![late("completed")]));
        let cut = completed("completed", Some("why"));
        assert_eq!(cut, ("interrupted".into(), vec![late("completed"), unread()]));
        // What the guest did says more.
        let panic = completed("guest-panic", Some("why"));
        assert_eq!(panic, ("guest-panic".into(), vec![late("guest-panic"), unread()]));
    }
}
