//! What the supervisor and clients inside QEMU say to each other: how a client is set up, what it is asked, what it answers.

use crate::config::TracerConfig;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The configuration of a plugin with clients: a JSON file, named on QEMU's command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientConfig {
    /// Where things are in this kernel. Its log, hooks, holds and gate are not used.
    pub kernel: TracerConfig,
    /// More of modules than tracing needs.
    pub modules: ModuleList,
    /// The file with the kernel's image (vmlinuz), for clients that read symbols and types.
    pub image: PathBuf,
    /// What is instrumented.
    pub scope: Scope,
    /// The clients that run, and their options.
    pub clients: Vec<Choice>,
    /// Where the plugin listens for [`Request`]s: a Unix socket.
    pub socket: PathBuf,
    /// Where it writes its [`Report`] when QEMU ends.
    pub results: PathBuf,
    /// Attached from the kernel's first instruction.
    pub attached: bool,
}

/// A client and its options, as `--client NAME:KEY=VALUE:…` names them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The client's name.
    pub name: String,
    /// Its options.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

/// The kernel's list of modules, where their symbols have names, and where tasks change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleList {
    /// Link-time address of the list's head (`modules`).
    pub head: u64,
    /// `module::list`.
    pub list: u64,
    /// `mod_kallsyms::strtab`.
    pub strtab: u64,
    /// Link-time address of `__switch_to(struct task_struct *from, struct task_struct *to)`.
    pub switch: Option<u64>,
}

/// Which code is instrumented. User code never is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// All code at kernel addresses.
    #[default]
    Kernel,
    /// The modules with these names.
    Modules(Vec<String>),
    /// Only these functions.
    Functions {
        /// Link-time ranges in the kernel's image.
        ranges: Vec<(u64, u64)>,
        /// Names with `*` and `?`, for functions of modules.
        patterns: Vec<String>,
    },
}

/// A request on the plugin's socket: one line of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// Instrument from now on.
    Attach,
    /// Take all instrumentation away.
    Detach,
    /// What the clients have until now.
    Results,
    /// Attached or not.
    Status,
}

/// The answer to a [`Request`]: one line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// The state now.
    State {
        /// The code in the scope is instrumented now.
        attached: bool,
        /// How often it was attached.
        times: u64,
    },
    /// What the clients have.
    Results(Box<Report>),
    /// One sentence.
    Error(String),
}

/// What the clients of one plugin have to say, with what turns its addresses into names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What KASLR added; `None` before the kernel has run.
    pub slide: Option<u64>,
    /// The modules that were seen, gone ones included.
    pub modules: Vec<Module>,
    /// What each client has.
    pub clients: Vec<Results>,
}

/// A module of the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// Address of its `struct module`.
    pub address: u64,
    /// Its name.
    pub name: String,
    /// Start, size, [`RegionFlags`](crate::event::RegionFlags).
    pub regions: Vec<(u64, u64, u64)>,
    /// Addresses and names of its functions, sorted.
    pub functions: Vec<(u64, String)>,
    /// It has been unloaded.
    pub gone: bool,
    /// When it was seen first, and when it went, counted in modules that came and went.
    #[serde(default)]
    pub life: (u64, u64),
}

impl Module {
    /// An address of this module.
    pub fn contains(&self, addr: u64) -> bool {
        self.regions.iter().any(|&(start, size, _)| addr.wrapping_sub(start) < size)
    }
}

/// What a client has to say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Its name.
    pub client: String,
    /// What it counted or measured.
    pub tables: Vec<Table>,
    /// The faults that it found.
    pub findings: Vec<Fault>,
    /// What the reader must know, one sentence each.
    pub notes: Vec<String>,
    /// Files that it wrote.
    pub files: Vec<PathBuf>,
}

/// A table of results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// What it shows.
    pub name: String,
    /// What the columns hold, with the unit.
    pub columns: Vec<String>,
    /// The rows; each as long as there are columns.
    pub rows: Vec<Vec<Cell>>,
    /// How it can be drawn as well.
    #[serde(default)]
    pub chart: Chart,
}

/// How a table can be drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Chart {
    /// As a table.
    #[default]
    Table,
    /// As a flame graph: a column of stacks and one of counts.
    Flames,
    /// As the coverage of lines: address, length and count of blocks that ran.
    Coverage,
    /// Rows with the same first cell, once it has a name, are one row: their counts and ratios are added, and the largest of the
    /// first count comes first.
    Sums,
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cell {
    /// A text that is shown as it is.
    Text(String),
    /// A count.
    Count(u64),
    /// A ratio or a mean.
    Real(f64),
    /// An address of code, to be named with its line.
    Code(u64),
    /// An address of code, to be named by its function alone.
    Function(u64),
    /// Addresses of code, the innermost first.
    Stack(Vec<u64>),
}

/// A fault that a client saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What kind, in the field's words (`use-after-free`).
    pub kind: String,
    /// One sentence, without symbols.
    pub message: String,
    /// The instruction.
    pub pc: u64,
    /// The stack: the instruction, then where each call returns to.
    pub stack: Vec<u64>,
    /// Address and size of the access, and whether it writes.
    pub access: Option<(u64, u64, bool)>,
    /// The object that it is about.
    pub object: Option<FaultObject>,
    /// The vCPU.
    pub cpu: u32,
    /// `process`, `softirq`, `hardirq` or `nmi`.
    pub level: String,
    /// The task's name and pid, such as `modprobe/123`.
    pub task: String,
    /// How often it was seen at this instruction.
    pub count: u64,
    /// When, counted in modules that came and went: another may have been at an address before or after. 0: not known.
    #[serde(default)]
    pub when: u64,
    /// The thread was stopped before it did harm.
    pub contained: bool,
}

/// The object of a [`Fault`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultObject {
    /// Its address.
    pub address: u64,
    /// Its size in bytes, as it was asked for.
    pub size: u64,
    /// What sort of memory it is: `slab`, `page`, `vmalloc`, `percpu`, `stack`.
    pub class: String,
    /// Its cache's name, where it has one.
    pub name: Option<String>,
    /// Where it was allocated, if that was seen: where each call returns to.
    pub allocated: Vec<u64>,
    /// Where it was freed, likewise.
    pub freed: Vec<u64>,
}

/// The name fits the pattern, in which `*` stands for any characters and `?` for one.
pub fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => (p, n) = (p + 1, n + 1),
            _ => match star {
                // The star takes one character more.
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    (p, n) = (at + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_names() {
        for (pattern, name) in [
            ("tcp_*", "tcp_sendmsg"),
            ("*", ""),
            ("a?c", "abc"),
            ("*_lock*", "mutex_lock"),
            ("a*b*c", "aXbYbZc"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("tcp_*", "udp_sendmsg"), ("a?c", "ac"), ("", "x"), ("a*b", "abc")] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }
}
