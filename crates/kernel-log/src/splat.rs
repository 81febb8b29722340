//! Splats: what belongs to each, from its first line to the end of its stacks.

mod reader;

use crate::frames::{Place, Task};
use crate::lines;
use crate::signs::Sign;

/// The most splats of a log that are read.
pub(crate) const MAX_SPLATS: usize = 1024;

/// A further stack of a splat, such as that of an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// The line before the stack.
    pub what: String,
    /// Places, innermost first.
    pub trace: Vec<Place>,
}

/// The object of a splat, as KFENCE and KASAN describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// Address of its first byte, as the kernel prints it: mostly a hash.
    pub address: String,
    /// Size in bytes.
    pub size: u64,
    /// Name of its cache.
    pub cache: String,
}

/// One fault that the kernel reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splat {
    /// The sort of fault.
    pub sign: Sign,
    /// The first line, without level and time.
    pub line: String,
    /// Further lines that explain it.
    pub details: Vec<String>,
    /// Places, innermost first. Leftovers on the stack are not among them.
    pub trace: Vec<Place>,
    /// The context: `process`, `softirq`, `hardirq` or `nmi`.
    pub level: &'static str,
    /// Number of the CPU; `None` where the splat names none.
    pub cpu: Option<u32>,
    /// The thread; `None` where the splat names none.
    pub task: Option<Task>,
    /// Further stacks.
    pub stacks: Vec<Stack>,
    /// The object that was misused; `None` where the splat has none.
    pub object: Option<Object>,
    /// The driver that was loaded last.
    pub loaded: String,
}

/// Reads the splats of a log, from the load of the first driver on.
pub fn splats(log: &str) -> Vec<Splat> {
    let mut reader = reader::Reader::default();
    for (line, driver) in lines::since_load(log) {
        reader.line(line, driver);
    }
    reader.finish()
}
