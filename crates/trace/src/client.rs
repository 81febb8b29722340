//! The protocol between the supervisor and the clients inside QEMU: configuration, requests and replies.

use crate::config::TracerConfig;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The configuration of a plugin with clients: a JSON file named on QEMU's command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientConfig {
    /// Addresses and offsets of this kernel. Its log, hooks, holds and gate are not used.
    pub kernel: TracerConfig,
    /// Additional offsets of modules, which tracing does not need.
    pub modules: ModuleList,
    /// Path of the kernel image (vmlinuz), for clients that read symbols and types.
    pub image: PathBuf,
    /// Which code is instrumented.
    pub scope: Scope,
    /// The clients that run, with their options.
    pub clients: Vec<ClientChoice>,
    /// Path of the Unix socket on which the plugin listens for [`Request`]s.
    pub socket: PathBuf,
    /// Path of the file into which the plugin writes its [`Report`] when QEMU ends.
    pub results: PathBuf,
    /// True where instrumentation begins with the kernel's first instruction; else it waits for
    /// [`Request::Attach`].
    pub attached: bool,
}

/// A client and its options, as `--client NAME:KEY=VALUE:…` names them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientChoice {
    /// Name of the client, as in its table.
    pub name: String,
    /// Values of its options, by name.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

/// Offsets and addresses of the kernel's module list, of symbol names, and of the task switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleList {
    /// Link-time address of the list's head (`modules`).
    pub head: u64,
    /// Offset of `module::list`, in bytes.
    pub list: u64,
    /// Offset of `mod_kallsyms::strtab`, in bytes.
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
    /// Code of the modules with these names.
    Modules(Vec<String>),
    /// Code of these functions only.
    Functions {
        /// Link-time ranges (start, end) in the kernel image.
        ranges: Vec<(u64, u64)>,
        /// Name patterns with `*` and `?`, for functions of modules.
        patterns: Vec<String>,
    },
}

/// A request on the plugin's socket, as one line of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// Instrument the scope from now on.
    Attach,
    /// Remove all instrumentation.
    Detach,
    /// Send the results of all clients up to now.
    Results,
    /// Send the state: attached or not.
    Status,
}

/// The reply to a [`Request`], as one line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// The state after the request.
    State {
        /// True while the code in the scope is instrumented.
        attached: bool,
        /// Number of attachments so far.
        times: u64,
    },
    /// The results of all clients up to now.
    Results(Box<Report>),
    /// One sentence that says why the request failed.
    Error(String),
}

/// The results of one plugin's clients, with the modules that give names to their addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The KASLR slide; `None` before the kernel has run.
    pub slide: Option<u64>,
    /// All modules that the plugin saw, including unloaded ones.
    pub modules: Vec<Module>,
    /// The results of each client.
    pub clients: Vec<Results>,
}

/// A module of the guest, as the plugin saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// Guest virtual address of its `struct module`.
    pub address: u64,
    /// Name of the module, as in `struct module`.
    pub name: String,
    /// Start, size and [`RegionFlags`](crate::event::RegionFlags) of each region.
    pub regions: Vec<(u64, u64, u64)>,
    /// Guest virtual addresses and names of its functions, sorted by address.
    pub functions: Vec<(u64, String)>,
    /// True once the module was unloaded.
    pub gone: bool,
    /// When the plugin first saw the module, and when the module was unloaded. The unit is the count of
    /// loads and unloads so far.
    #[serde(default)]
    pub life: (u64, u64),
}

impl Module {
    /// Whether the address lies in a region of this module.
    pub fn contains(&self, addr: u64) -> bool {
        self.regions.iter().any(|&(start, size, _)| addr.wrapping_sub(start) < size)
    }
}

/// The results of one client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Name of the client.
    pub client: String,
    /// The tables that the client filled.
    pub tables: Vec<Table>,
    /// The faults that the client found.
    pub findings: Vec<Fault>,
    /// Facts that the reader must know, one sentence each.
    pub notes: Vec<String>,
    /// Paths of the files that the client wrote.
    pub files: Vec<PathBuf>,
}

/// A table of results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Title of the table.
    pub name: String,
    /// Headings of the columns, with the unit.
    pub columns: Vec<String>,
    /// Rows; each has as many cells as `columns` has headings.
    pub rows: Vec<Vec<Cell>>,
    /// A further way to draw the table.
    #[serde(default)]
    pub chart: Chart,
}

/// How a table can be drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Chart {
    /// As a plain table.
    #[default]
    Table,
    /// As a flame graph: a column of stacks and a column of counts.
    Flames,
    /// As line coverage: address, length and count of the blocks that ran.
    Coverage,
    /// As a table in which rows merge when their first cells get the same name. Their counts and ratios
    /// are added, and rows are sorted by the first count, largest first.
    Sums,
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cell {
    /// Text that is shown as it is.
    Text(String),
    /// A count, without a unit.
    Count(u64),
    /// A ratio or a mean, without a unit.
    Real(f64),
    /// An address of code, shown as its function and line.
    Code(u64),
    /// An address of code, shown as its function only.
    Function(u64),
    /// Addresses of code, innermost first.
    Stack(Vec<u64>),
}

/// A fault that a client saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The kind, in the field's words (`use-after-free`).
    pub kind: String,
    /// One sentence, without symbols.
    pub message: String,
    /// Guest virtual address of the instruction.
    pub pc: u64,
    /// The stack: the address of the instruction, then the return address of each call.
    pub stack: Vec<u64>,
    /// Address and size of the access, and true for a store. `None` where the fault is no access.
    pub access: Option<(u64, u64, bool)>,
    /// The object of the fault; `None` where it has none.
    pub object: Option<FaultObject>,
    /// Index of the vCPU.
    pub cpu: u32,
    /// The level: `process`, `softirq`, `hardirq` or `nmi`.
    pub level: String,
    /// The task's name and pid, such as `modprobe/123`.
    pub task: String,
    /// Number of times that it was seen at this instruction.
    pub count: u64,
    /// When it was seen, in loads and unloads of modules so far. Another module may hold the same
    /// address before or after. 0 where not known.
    #[serde(default)]
    pub when: u64,
    /// True where the client stopped the thread before the access did harm.
    pub contained: bool,
}

/// The object of a [`Fault`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultObject {
    /// Guest virtual address of its first byte.
    pub address: u64,
    /// Size in bytes, as the allocation asked for it.
    pub size: u64,
    /// The sort of memory: `slab`, `page`, `vmalloc`, `percpu` or `stack`.
    pub class: String,
    /// Name of its slab cache; `None` where it has none.
    pub name: Option<String>,
    /// Return addresses of the allocation's stack; empty where the client did not see the allocation.
    pub allocated: Vec<u64>,
    /// Return addresses of the stack that freed it; empty where the client did not see that.
    pub freed: Vec<u64>,
}

/// Whether the name fits the pattern. In the pattern `*` stands for any characters and `?` for one.
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
                // The last star takes one more character.
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
