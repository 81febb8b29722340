//! Programs in the text form of syzkaller, as a workload: calls with their arguments and the memory that these point to.
//!
//! The host reads a program and writes it as operations, which a small program of ours carries out in the guest
//! (`guest/workloads/syz.c`). What the text leaves to syzkaller's descriptions of calls is refused with its place, since a
//! guess would run another program.
//!
//! **Knows**: the text, and the numbers of calls. **Must not know**: syzkaller's descriptions.

mod calls;
mod cursor;
mod read;
mod values;

use crate::error::{Context, Error, Result};
use std::fmt::{self, Write};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The end of the names of files with such programs.
pub(crate) const ENDING: &str = "syz";
/// The largest program, in bytes.
const MOST: u64 = 1 << 20;
/// The memory that a program's pointers lead to: its size, and its address in the guest.
const MEMORY: u64 = 16 << 20;
const MEMORY_AT: u64 = 0x2000_0000_0000;

/// A program that was read.
#[derive(Debug)]
pub(crate) struct Program {
    operations: Vec<Operation>,
}

/// What the guest does, in order.
#[derive(Debug, PartialEq, Eq)]
enum Operation {
    /// Writes bytes to the memory.
    Write { at: u64, bytes: Vec<u8> },
    /// Writes the result of an earlier call to the memory.
    Store { at: u64, form: Form, result: Earlier },
    /// Makes a call, so many times.
    Call { call: calls::Call, name: String, arguments: Vec<Argument>, result: Option<u32>, times: u64 },
}

/// How a result is written to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// As a number of so many bytes.
    Bytes(u8),
    /// As text, in 20 bytes.
    Decimal,
    /// As text, in 18 bytes.
    Hexadecimal,
    /// As text, in 23 bytes.
    Octal,
}

/// The result of an earlier call, divided, and with something added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Earlier {
    number: u32,
    divisor: u64,
    more: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Argument {
    Number(u64),
    Result(Earlier),
}

impl Form {
    /// How many bytes it takes.
    fn size(self) -> usize {
        match self {
            Form::Bytes(count) => usize::from(count),
            Form::Decimal => 20,
            Form::Hexadecimal => 18,
            Form::Octal => 23,
        }
    }
}

/// True for a file that has such a program by its name.
pub(crate) fn is_program(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == ENDING)
}

impl Program {
    /// Reads the program in a file.
    pub(crate) fn open(path: &Path) -> Result<Program> {
        let bad = |why: &str| Error::BadWorkload { path: path.to_path_buf(), why: why.to_owned() };
        let mut text = Vec::new();
        let file = File::open(path).context("open", path)?;
        file.take(MOST + 1).read_to_end(&mut text).context("read", path)?;
        if text.len() as u64 > MOST {
            return Err(bad(&format!("it is larger than {} KiB", MOST >> 10)));
        }
        let text = String::from_utf8(text).map_err(|_| bad("it is not text"))?;
        Program::read(&text).map_err(|wrong| {
            let path = PathBuf::from(format!("{}:{}", path.display(), wrong.place()));
            Error::BadWorkload { path, why: wrong.why() }
        })
    }

    /// Reads the text of a program.
    pub(crate) fn read(text: &str) -> std::result::Result<Program, cursor::Wrong> {
        Ok(Program { operations: read::program(text)? })
    }

    /// The operations as text, one a line: the language of `guest/workloads/syz.c`.
    pub(crate) fn operations(&self) -> String {
        let mut text = format!("memory {MEMORY_AT:x} {MEMORY:x}\n");
        for operation in &self.operations {
            let _ = writeln!(text, "{operation}");
        }
        text
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Write { at, bytes } => {
                write!(f, "write {at:x} ")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Operation::Store { at, form, result } => {
                let form = match form {
                    Form::Bytes(count) => format!("{count}"),
                    Form::Decimal => "d".to_owned(),
                    Form::Hexadecimal => "x".to_owned(),
                    Form::Octal => "o".to_owned(),
                };
                write!(f, "store {at:x} {form} {result}")
            }
            Operation::Call { call, name, arguments, result, times } => {
                write!(f, "call {call} {name} {times:x} ")?;
                match result {
                    Some(number) => write!(f, "r{number:x}")?,
                    None => write!(f, "-")?,
                }
                arguments.iter().try_for_each(|argument| match argument {
                    Argument::Number(number) => write!(f, " {number:x}"),
                    Argument::Result(result) => write!(f, " {result}"),
                })
            }
        }
    }
}

impl fmt::Display for Earlier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{:x}/{:x}+{:x}", self.number, self.divisor, self.more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_becomes_operations() {
        let text = "# opens a device\n\
                    r0 = openat$gauge(0xffffffffffffff9c, &(0x7f0000000000)='/dev/gauge\\x00', 0x2, 0x0)\n\
                    ioctl$X(r0, 0x40047601, &(0x200000000040)=ANY=[@ANYBLOB=\"0102\", @ANYRES32=r0])\n";
        let operations = Program::read(text).unwrap().operations();
        let lines: Vec<&str> = operations.lines().collect();
        assert_eq!(
            lines,
            [
                "memory 200000000000 1000000",
                "write 200000000000 2f6465762f676175676500",
                "call 101 openat$gauge 1 r0 ffffffffffffff9c 200000000000 2 0",
                "write 200000000040 010200000000",
                "store 200000000042 4 r0/1+0",
                "call 10 ioctl$X 1 - r0/1+0 40047601 200000000040",
            ]
        );
    }

    #[test]
    fn files_that_are_no_programs_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.syz");
        let why = || Program::open(&path).unwrap_err().to_string();
        std::fs::write(&path, b"\xff").unwrap();
        assert!(why().ends_with("it is not text"));
        std::fs::write(&path, vec![b'#'; MOST as usize + 1]).unwrap();
        assert!(why().ends_with("it is larger than 1024 KiB"));
        std::fs::write(&path, "# nothing\n\nclose(0x3)\nclose(0x3\n").unwrap();
        assert!(why().ends_with("x.syz:4:10: expected ',' or ')'"), "{}", why());
        assert!(is_program(&path) && !is_program(Path::new("x.sh")));
    }
}
