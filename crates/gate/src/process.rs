//! The gate in a process of its own. If the rest of Guardrail fails, the gate continues; if the gate fails,
//! it is closed.
//!
//! The process is a program that calls [`serve`], started by [`Process::start`]. The two communicate over its
//! standard input and output, one JSON object a line. The end of either releases the device from the other: a
//! gate without its parent ends itself and the device.

use crate::counts::Counts;
use crate::error::{Error, Result};
use crate::lines::{listen, receive, send};
use crate::memory::Memory;
use crate::policy::Gate;
use crate::sys;
use crate::vfio_user::{self, Options, Server};
use guardrail_jail::Role;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::BufReader;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The time limit for an answer of the process; closing waits for the device's disks.
const LIMIT: Duration = Duration::from_secs(90);
/// The time limit for an answer that needs no waiting.
const TELL_LIMIT: Duration = Duration::from_secs(10);

/// An order to the process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    /// Start a server, with the number of the guest's memory, and what the program's own policy needs.
    Start(Box<Options>, RawFd, Value),
    /// Close the gate, for this reason.
    Contain(String),
    /// Report the state.
    Report,
    /// End in order.
    Stop,
}

/// A message of the process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    /// The server listens; the driver VM's QEMU receives these arguments.
    Ready(Vec<String>),
    /// The gate cannot continue, for this reason.
    Failed(String),
    /// The gate's state.
    State(Box<State>),
}

/// The state of the gate.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct State {
    /// The accesses so far.
    pub counts: Counts,
    /// Why it cannot continue; `None` while it can.
    pub failure: Option<String>,
    /// The number of the device's process, once it has started.
    pub device: Option<u32>,
    /// The policy's report; see [`Gate::report`].
    #[serde(default)]
    pub policy: Value,
}

/// A gate in a process of its own; dropping it ends the process, and the device with it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<Answer>,
    arguments: Vec<String>,
    last: State,
    socket: PathBuf,
    memory: Memory,
}

impl Process {
    /// Starts a program that calls [`serve`]. Call it on a thread that lives as long as the gate: the process
    /// ends with that thread. `policy` is passed to the program unchanged. The process is jailed, and so is the
    /// device's QEMU in a narrower jail.
    pub fn start(mut command: Command, options: &Options, policy: Value) -> Result<Process> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let memory = Memory::new(options.memory_mib)?;
        sys::bind_child(&mut command, vec![memory.number()]);
        // The process may create no file for the trace outside its folder.
        options.device.make_trace()?;
        let jail = options.device.whole_reach().and(&options.reach).writes(&options.folder);
        let jail = jail.reads(command.get_program()).unix_sockets().apart(Role::Gate);
        let jail = jail.more_memory(u64::from(options.memory_mib) << 20);
        let mut child = guardrail_jail::spawn(&mut command, &jail)
            .map_err(|error| Error::Process { what: format!("cannot be started: {error}") })?;
        let (stdin, answers) = (child.stdin.take(), listen(child.stdout.take()));
        let mut process = Process {
            child,
            stdin,
            answers,
            arguments: Vec::new(),
            last: State::default(),
            socket: vfio_user::socket(&options.folder),
            memory,
        };
        let number = process.memory.number();
        process.order(&Order::Start(Box::new(options.clone()), number, policy))?;
        match process.answer(LIMIT)? {
            Answer::Ready(arguments) => process.arguments = arguments,
            Answer::Failed(what) => {
                return Err(Error::Process { what: format!("could not start the gate: {what}") });
            }
            Answer::State(_) => return Err(Error::Process { what: "answered out of turn".into() }),
        }
        Ok(process)
    }

    /// See [`Server::qemu_arguments`].
    pub fn qemu_arguments(&self) -> Vec<String> {
        self.arguments.clone()
    }

    /// The guest's memory, which the driver VM's QEMU inherits.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Closes the gate, and returns when nothing can pass any more. Where the process has ended the gate is
    /// closed already, and the error says so.
    pub fn contain(&mut self, why: &str) -> Result<State> {
        self.order(&Order::Contain(why.to_owned()))?;
        self.state_answer(LIMIT)
    }

    /// The state of the gate. An error means that the process has ended: the gate is closed.
    pub fn state(&mut self) -> Result<State> {
        self.order(&Order::Report)?;
        self.state_answer(TELL_LIMIT)
    }

    /// The state that the gate reported last, without asking.
    pub fn last(&self) -> &State {
        &self.last
    }

    /// True while the process runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends the process and the device in order, and returns the final state.
    pub fn stop(mut self) -> Result<State> {
        self.order(&Order::Stop)?;
        let state = self.state_answer(LIMIT)?;
        self.stdin = None;
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.is_running() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(state)
    }

    fn state_answer(&mut self, limit: Duration) -> Result<State> {
        match self.answer(limit)? {
            Answer::State(state) => {
                self.last = *state;
                Ok(self.last.clone())
            }
            Answer::Failed(what) => Err(Error::Process { what }),
            Answer::Ready(_) => Err(Error::Process { what: "answered out of turn".into() }),
        }
    }

    fn order(&mut self, order: &Order) -> Result<()> {
        let sent = self.stdin.as_mut().is_some_and(|stdin| send(stdin, order));
        if sent { Ok(()) } else { Err(self.death()) }
    }

    fn answer(&mut self, limit: Duration) -> Result<Answer> {
        match self.answers.recv_timeout(limit) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Disconnected) => Err(self.death()),
            Err(RecvTimeoutError::Timeout) => {
                Err(Error::Process { what: format!("gave no answer for {} s", limit.as_secs()) })
            }
        }
    }

    /// The error for the death of the process.
    fn death(&mut self) -> Error {
        // Its pipes are closed a moment before it ends.
        let what = sys::death(&mut self.child).unwrap_or_else(|| "does not listen anymore".into());
        sys::kill_group(&mut self.child);
        Error::Process { what }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        sys::kill_group(&mut self.child);
        // Removes the socket where the process could not do so itself.
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// The whole life of the gate's process. It serves orders from standard input until one stops it, or standard
/// input ends. `policy` builds the policy from the value that [`Process::start`] received.
pub fn serve(
    policy: impl FnOnce(Value) -> std::result::Result<Arc<dyn Gate>, String>,
) -> std::process::ExitCode {
    let (mut input, mut output) = (BufReader::new(std::io::stdin()), std::io::stdout());
    let Some(Order::Start(options, memory, given)) = receive(&mut input) else { return 2.into() };
    let started = policy(given).and_then(|gate| {
        // SAFETY: this process has opened no file under a number that it inherited for the memory.
        let memory = unsafe { Memory::inherited(memory, options.memory_mib) };
        let server = memory.and_then(|memory| Server::start(*options, memory, Arc::clone(&gate)));
        Ok((server.map_err(|error| error.to_string())?, gate))
    });
    let (server, gate) = match started {
        Ok(started) => started,
        Err(why) => {
            send(&mut output, &Answer::Failed(why));
            return 1.into();
        }
    };
    if !send(&mut output, &Answer::Ready(server.qemu_arguments())) {
        return 1.into();
    }
    while let Some(order) = receive(&mut input) {
        let answer = match order {
            Order::Start(..) => Answer::Failed("there is a gate already".into()),
            Order::Report => state(&server, &*gate),
            Order::Contain(why) => match server.contain(&why) {
                Ok(()) => state(&server, &*gate),
                Err(error) => Answer::Failed(error.to_string()),
            },
            Order::Stop => {
                let (failure, device) = (server.failure(), server.device_process());
                let state = State { counts: server.stop(), failure, device, policy: gate.report() };
                send(&mut output, &Answer::State(Box::new(state)));
                return 0.into();
            }
        };
        if !send(&mut output, &answer) {
            break;
        }
    }
    0.into()
}

fn state(server: &Server, gate: &dyn Gate) -> Answer {
    let (counts, failure, device) = (server.counts(), server.failure(), server.device_process());
    Answer::State(Box::new(State { counts, failure, device, policy: gate.report() }))
}

/// How many lines of the process, and of its parent, are understood before the first that is not.
#[cfg(feature = "talk")]
pub fn understood(bytes: &[u8]) -> [usize; 2] {
    fn count<T: for<'a> Deserialize<'a>>(mut bytes: &[u8]) -> usize {
        std::iter::from_fn(|| receive::<T>(&mut bytes)).count()
    }
    [count::<Answer>(bytes), count::<Order>(bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_jail::Jail;

    #[test]
    fn a_program_that_is_no_gate_is_reported() {
        let options = Options {
            folder: std::env::temp_dir(),
            memory_mib: 1,
            hold_limit: Duration::from_secs(1),
            post_writes: false,
            id: "dut".into(),
            reach: ["/bin", "/usr", "/lib", "/lib64", "/etc/ld.so.cache"]
                .iter()
                .fold(Jail::new(), Jail::reads),
            device: crate::device::Options::default(),
        };
        let error = Process::start(Command::new("false"), &options, Value::Null).unwrap_err();
        assert_eq!(error.to_string(), "the gate's process ended with status 1");
    }

    #[test]
    fn lines_without_an_end_are_not_collected() {
        let mut endless = BufReader::new(std::io::repeat(b'x'));
        assert!(receive::<Order>(&mut endless).is_none());
    }
}
