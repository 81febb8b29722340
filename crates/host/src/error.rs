//! The errors of the program, and the exit status for each.

use std::error::Error;

/// Exit statuses; scripts rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// The run ended well, without findings.
    Clean = 0,
    /// The run reported findings.
    Findings = 1,
    /// The usage or the input is wrong.
    Usage = 2,
    /// The run itself failed.
    RunFailed = 3,
    /// A finding was contained.
    Contained = 4,
    /// A limit was reached before a verdict.
    Undecided = 5,
    /// Nothing was found, but too little was seen: no device, too little code, or a trace that was cut.
    NotExercised = 6,
    /// This machine lacks something, and another one may do it: a worker that is set aside, and a check of a worker.
    Unfit = 75,
    /// The user interrupted it.
    Interrupted = 130,
}

/// An error that ends the program.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The user's input is wrong.
    #[error("{0}")]
    Usage(String),
    /// The machine or the run failed.
    #[error("{0}")]
    Run(String),
    /// Nothing was found, but too little was seen to say that nothing is there.
    #[error("{0}")]
    NotExercised(String),
    /// This machine cannot compute jobs.
    #[error("{0}")]
    Unfit(String),
    /// The system killed what the machine had no memory for, or somebody did.
    #[error("{0}")]
    Killed(String),
    /// The user interrupted the program (Ctrl-C).
    #[error("interrupted")]
    Interrupted,
    /// An error of the driver VM.
    #[error(transparent)]
    Vm(#[from] guardrail_vm::Error),
    /// An error in a kernel image or a module.
    #[error(transparent)]
    Kernel(#[from] guardrail_binfmt::KernelError),
    /// An error while mutants of a driver are made.
    #[error(transparent)]
    Inject(#[from] guardrail_mutate::Error),
    /// An error in a module that is to be guarded, or that is guarded.
    #[error(transparent)]
    Rewrite(#[from] guardrail_rewrite::RewriteError),
    /// An error in the log.
    #[error(transparent)]
    Log(#[from] guardrail_trace::log::LogError),
    /// An error in a trace file.
    #[error(transparent)]
    Trace(#[from] guardrail_trace::file::FileError),
    /// An error in a saved guest.
    #[error(transparent)]
    Snapshot(#[from] guardrail_snapshot::Error),
    /// An error of a file operation.
    #[error("cannot {doing} {path}")]
    Io {
        /// The operation, as a verb.
        doing: &'static str,
        /// The path that it was tried on.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
}

impl HostError {
    /// The exit status for this error.
    pub fn status(&self) -> Status {
        use guardrail_trace::file::FileError;
        match self {
            HostError::Usage(_) | HostError::Kernel(_) => Status::Usage,
            HostError::Vm(error) if error.is_usage() => Status::Usage,
            HostError::Inject(guardrail_mutate::Error::Unsound { .. }) => Status::RunFailed,
            HostError::Inject(_) => Status::Usage,
            HostError::Rewrite(guardrail_rewrite::RewriteError::Check { .. }) => Status::RunFailed,
            HostError::Rewrite(_) => Status::Usage,
            HostError::Trace(FileError::DiskFull { .. } | FileError::Poisoned { .. }) => Status::RunFailed,
            HostError::Trace(_) => Status::Usage,
            HostError::Run(_)
            | HostError::Vm(_)
            | HostError::Log(_)
            | HostError::Snapshot(_)
            | HostError::Killed(_)
            | HostError::Io { .. } => Status::RunFailed,
            HostError::NotExercised(_) => Status::NotExercised,
            HostError::Unfit(_) => Status::Unfit,
            HostError::Interrupted => Status::Interrupted,
        }
    }

    /// Whether this machine lacks what is needed, such as space, memory, a program or the network: the same may succeed on
    /// another machine, or here later.
    pub fn is_of_machine(&self) -> bool {
        use guardrail_trace::file::FileError;
        match self {
            HostError::Unfit(_) | HostError::Killed(_) | HostError::Trace(FileError::DiskFull { .. }) => true,
            HostError::Vm(error) if error.is_of_machine() => true,
            other => lacks(other),
        }
    }

    /// Wraps an I/O error.
    pub fn io(doing: &'static str, path: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> HostError {
        let path = path.to_string();
        move |source| HostError::Io { doing, path, source }
    }
}

/// Whether the system said that something is used up, in any cause of an error.
fn lacks(error: &(dyn Error + 'static)) -> bool {
    // EAGAIN is not among them: a guest that does not answer in time has that, too.
    const USED_UP: [i32; 6] =
        [libc::ENOSPC, libc::EDQUOT, libc::ENOMEM, libc::EMFILE, libc::ENFILE, libc::EROFS];
    let mut next = Some(error);
    while let Some(error) = next {
        let number = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
        if number.is_some_and(|number| USED_UP.contains(&number)) {
            return true;
        }
        next = error.source();
    }
    false
}

/// The error as one line. A cause that the message contains already is not repeated.
pub fn sentence(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Prints the error on standard error.
pub fn print(error: &HostError) {
    print_line("error", &sentence(error));
}

/// Prints one line on standard error; a closed standard error is ignored.
pub fn print_line(level: &str, text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{level}: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let source = std::io::Error::other("no such thing");
        let error = HostError::Io { doing: "read", path: "x".into(), source };
        assert_eq!(sentence(&error), "cannot read x: no such thing");
        let error = HostError::Run("a\n  b\n".into());
        assert_eq!(sentence(&error), "a b");
    }

    #[test]
    fn what_a_machine_lacks_is_no_fault_of_what_it_ran() {
        let of = |number| HostError::io("write", "x")(std::io::Error::from_raw_os_error(number));
        assert!(of(libc::ENOSPC).is_of_machine() && of(libc::ENOMEM).is_of_machine());
        assert!(!of(libc::ENOENT).is_of_machine());
        let vm = |error: guardrail_vm::Error| HostError::Vm(error).is_of_machine();
        assert!(vm(guardrail_vm::Error::NoMirror) && vm(guardrail_vm::Error::DiskFull { path: "x".into() }));
        assert!(vm(guardrail_vm::Error::Io {
            doing: "read",
            path: "x".into(),
            source: std::io::Error::from_raw_os_error(libc::EMFILE)
        }));
        assert!(!vm(guardrail_vm::Error::BadValue("x".into())));
        assert!(!HostError::Run("the guest hung".into()).is_of_machine());
        assert_eq!(HostError::Unfit("x".into()).status() as u8, 75);
        let killed = HostError::Killed("QEMU failed".into());
        assert!(killed.is_of_machine() && killed.status() as u8 == Status::RunFailed as u8);
    }
}
