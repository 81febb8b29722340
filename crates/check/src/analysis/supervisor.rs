//! The supervisor's side of the analysis process.

use crate::analysis::wire::{Analyzed, GuestEnd, Hooks, Job, Message, Order, ShortFinding, receive, send};
use guardrail_host::folders::program;
use guardrail_host::{HostError, Signals};
use guardrail_vm::ending::ending_early;
use std::io::BufReader;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long the process may take to open kernel image and modules.
const START_LIMIT: Duration = Duration::from_secs(120);
/// How long the process may be silent at the end; it reports its progress while it reads.
const SILENCE_LIMIT: Duration = Duration::from_secs(120);
/// How long the process may read on after the user has interrupted the run.
const READ_ON: Duration = Duration::from_secs(20);
/// How long it may take for its report once it reads no further.
const REPORT_LIMIT: Duration = Duration::from_secs(20);

/// A running analysis process; dropping it ends it.
pub struct Analysis {
    child: Child,
    stdin: ChildStdin,
    heard: Receiver<Message>,
    words: u64,
    failed: Option<String>,
    found: Vec<ShortFinding>,
}

impl Analysis {
    /// Starts the process, which opens what the job names.
    pub fn start(job: &Job) -> Result<Analysis, HostError> {
        let program = program()?;
        let child = Command::new(&program)
            .arg("internal-analysis")
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            // The supervisor handles Ctrl-C at the terminal.
            .process_group(0)
            .spawn()
            .map_err(HostError::io("start", program.display()))?;
        let mut analysis = Analysis::of(child);
        // If the process died at once, its message explains more than the broken pipe.
        let _ = send(&mut analysis.stdin, job);
        Ok(analysis)
    }

    /// Tells the process the names of the hooks, and waits until it is ready to read the log.
    pub fn ready(&mut self, hooks: Vec<String>, stop: &dyn Fn() -> bool) -> Result<(), HostError> {
        let _ = send(&mut self.stdin, &Hooks(hooks));
        self.wait_for(START_LIMIT, stop, |message| matches!(message, Message::Ready)).map(drop)
    }

    /// Listens to a process whose standard input and output are pipes.
    fn of(mut child: Child) -> Analysis {
        let stdin = child.stdin.take().expect("it was asked for");
        let stdout = child.stdout.take().expect("it was asked for");
        let (sender, heard) = mpsc::channel();
        std::thread::spawn(move || {
            let mut input = BufReader::new(stdout);
            while let Ok(Some(message)) = receive(&mut input) {
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        Analysis { child, stdin, heard, words: 0, failed: None, found: Vec::new() }
    }

    /// The number of words that the analysis has read.
    pub fn words(&mut self) -> u64 {
        self.listen();
        self.words
    }

    /// Findings that were reported since the last call.
    pub fn found(&mut self) -> Vec<ShortFinding> {
        self.listen();
        std::mem::take(&mut self.found)
    }

    /// Lets the analysis continue after a finding at which it waits.
    pub fn go_on(&mut self, finding: &str) {
        self.order(&Order::GoOn(finding.to_owned()));
    }

    fn order(&mut self, order: &Order) {
        // The end of the process is noticed elsewhere.
        let _ = send(&mut self.stdin, order);
    }

    /// Why the analysis cannot continue; `None` while it can.
    pub fn failure(&mut self) -> Option<String> {
        self.listen();
        if self.failed.is_none() && !matches!(self.child.try_wait(), Ok(None)) {
            self.failed = Some(self.death());
        }
        self.failed.clone()
    }

    /// Sends the end of the guest, waits until the log is read to its end, and returns the findings. Where the user
    /// interrupts the run, the log is read for a bounded time; where the user does so again, nothing is returned.
    pub fn finish(mut self, end: GuestEnd, signals: &Signals) -> Result<Analyzed, HostError> {
        self.order(&Order::Ended(Box::new(end)));
        let overdue = || signals.elapsed().is_some_and(|time| time > READ_ON);
        self.results(&overdue, &|| signals.insisted())
    }

    /// Waits for the results; where they are overdue, for those so far. `insists`: the user does not wait.
    fn results(
        &mut self,
        overdue: &dyn Fn() -> bool,
        insists: &dyn Fn() -> bool,
    ) -> Result<Analyzed, HostError> {
        let done = |message: &Message| matches!(message, Message::Done(_));
        let mut heard = self.wait_for(SILENCE_LIMIT, &|| insists() || overdue(), done);
        if matches!(heard, Err(HostError::Interrupted)) && !insists() {
            self.order(&Order::Cut);
            heard = self.wait_for(REPORT_LIMIT, insists, done);
        }
        match heard? {
            Message::Done(analyzed) => Ok(*analyzed),
            _ => Err(HostError::Run("the analysis gave no result".into())),
        }
    }

    fn listen(&mut self) {
        while let Ok(message) = self.heard.try_recv() {
            match message {
                Message::Progress(words) => self.words = words,
                Message::Failed(why) => self.failed = Some(why),
                Message::Found(found) => self.found.push(found),
                Message::Ready | Message::Drained | Message::Done(_) => {}
            }
        }
    }

    fn wait_for(
        &mut self,
        limit: Duration,
        stop: &dyn Fn() -> bool,
        wanted: fn(&Message) -> bool,
    ) -> Result<Message, HostError> {
        if let Some(why) = self.failed.take() {
            return Err(HostError::Run(why));
        }
        let mut deadline = Instant::now() + limit;
        loop {
            if stop() {
                return Err(HostError::Interrupted);
            }
            match self.heard.recv_timeout(Duration::from_millis(100)) {
                Ok(message) if wanted(&message) => return Ok(message),
                Ok(Message::Failed(why)) => return Err(HostError::Run(why)),
                Ok(Message::Progress(words)) => {
                    self.words = words;
                    deadline = Instant::now() + limit;
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(HostError::Run(self.death())),
                Err(RecvTimeoutError::Timeout) if Instant::now() > deadline => {
                    return Err(HostError::Run(format!(
                        "the analysis gave no sign of life for {} s",
                        limit.as_secs()
                    )));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// A sentence on how the process died.
    fn death(&mut self) -> String {
        match self.child.wait() {
            Ok(status) => format!("the analysis {}", ending_early(status)),
            Err(error) => format!("the analysis cannot be waited for: {error}"),
        }
    }
}

impl Drop for Analysis {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results of an analysis that is a shell script.
    fn results(script: &str, overdue: bool, insists: bool) -> Result<Analyzed, HostError> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        Analysis::of(command.spawn().unwrap()).results(&|| overdue, &|| insists)
    }

    #[test]
    fn an_analysis_that_reads_for_too_long_is_asked_for_what_it_has() {
        let slow =
            r#"read -r order; [ "$order" = '"cut"' ] && echo '{"done":{"cut":"here"}}'; read -r order"#;
        assert_eq!(results(slow, true, false).unwrap().cut.as_deref(), Some("here"));
        assert!(matches!(results(slow, true, true), Err(HostError::Interrupted)));
        let dead = results("read -r order; exit 3", true, false).unwrap_err();
        assert_eq!(dead.to_string(), "the analysis ended too early, with status 3");
        let quick = results(r#"echo '{"done":{}}'"#, false, false).unwrap();
        assert_eq!(quick, Analyzed::default());
    }
}
