//! Progress on standard error: a bar on a terminal, plain lines otherwise.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// The display of a run's progress.
pub struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// A spinner where standard error is a terminal, plain lines otherwise.
    pub fn shown() -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} [{elapsed_precise}] {wide_msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Progress { bar }
    }

    /// A display that shows nothing, for calls that must be quiet.
    pub fn silent() -> Progress {
        Progress { bar: Some(ProgressBar::hidden()) }
    }

    /// A step that is worth a line of its own.
    pub fn step(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(text.to_owned()),
            None => line(text),
        }
    }

    /// A note that stays on the screen.
    pub fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(format!("guardrail: {text}")),
            None => line(text),
        }
    }

    /// A step of the guest, with the time since it started.
    pub fn guest(&self, time: Duration, text: &str) {
        self.step(&format!("{:6.1} s  {text}", time.as_secs_f64()));
    }

    /// A finding, at the moment of its report.
    pub fn found(&self, checker: &str, kind: &str, action: &str) {
        self.step(&format!("{checker}: {kind} ({action})"));
    }

    /// Removes the bar, so that it does not mix with later output.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

fn line(text: &str) {
    let _ = writeln!(std::io::stderr(), "guardrail: {text}");
}
