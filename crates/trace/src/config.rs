//! What the tracer is told: plain addresses and offsets, worked out on the host from the kernel image.
//!
//! The host writes a [`TracerConfig`] as JSON into the run folder and names the file on QEMU's command
//! line (`-plugin libguardrail_tracer.so,config=FILE`). All addresses are link-time addresses: the tracer
//! finds the KASLR slide with [`Probe`] and adds it.

use crate::event::Global;
use serde::{Deserialize, Serialize};

/// Everything the tracer needs to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracerConfig {
    /// Path of the shared-memory log, created by the host before QEMU starts.
    pub log: String,
    /// How to find the KASLR slide.
    pub probe: Probe,
    /// Link-time range of the kernel image's text; code outside it and outside watched modules is never instrumented.
    pub kernel_text: (u64, u64),
    /// Names of the modules to trace, as `struct module` spells them (with `_`, not `-`).
    pub watch: Vec<String>,
    /// Functions that tell of module load, init sections given back, and unload.
    pub modules: ModuleHooks,
    /// Where `struct module` keeps what the tracer reads.
    pub layout: ModuleLayout,
    /// Per-CPU variables, as offsets from the GS base.
    pub per_cpu: PerCpu,
    /// Offsets in `struct task_struct`.
    pub task: TaskLayout,
    /// Kernel functions reported wherever they are called from, while a watched module is loaded.
    /// The index is the hook number in the log.
    pub hooks: Vec<Hook>,
    /// Values to read from the guest when the first watched module is loaded: what, link-time address.
    pub globals: Vec<(Global, u64)>,
    /// Functions that modules call, with the number of their integer arguments (0..=5) where fewer than all registers hold some.
    #[serde(default)]
    pub arguments: Vec<(u64, u8)>,
    /// Addresses of `__x86_indirect_thunk_<reg>` with the hardware number of the register (rax = 0 … r15 = 15).
    pub indirect_thunks: Vec<(u64, u8)>,
    /// Addresses of return thunks: a jump there is a return.
    pub return_thunks: Vec<u64>,
    /// How much is instrumented.
    #[serde(default)]
    pub scope: Scope,
    /// Accesses that are held to see who comes meanwhile.
    #[serde(default)]
    pub holds: Holds,
    /// Device accesses are held until they are checked.
    #[serde(default)]
    pub gate: Option<Gate>,
}

/// How device accesses are held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gate {
    /// The longest that an access is held, in milliseconds of the host; then the gate closes.
    pub limit_millis: u64,
    /// An access that reached a device without being held closes the gate.
    pub strict: bool,
    /// Physical addresses of the guest's RAM; everything else is devices.
    pub ram: Vec<(u64, u64)>,
    /// Link-time ranges of kernel functions that access devices for their drivers.
    pub accessors: Vec<(u64, u64)>,
    /// Link-time entries of the functions that access PCI configuration space.
    pub config_space: Vec<ConfigAccessor>,
    /// Link-time entries of functions that change what addresses of devices mean.
    pub remaps: Vec<u64>,
    /// Where the kernel binds drivers to PCI devices.
    pub probe: Option<PciProbe>,
}

/// `int f(unsigned seg, unsigned bus, unsigned devfn, int reg, int len, u32 value)`, or with a pointer to the value where it reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigAccessor {
    /// Link-time entry.
    pub address: u64,
    /// It writes.
    pub write: bool,
}

/// `long f(struct drv_dev_and_id *)`, which calls the probe function of a driver for a PCI device (drivers/pci/pci-driver.c), and what
/// to read there; offsets in the structures named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciProbe {
    /// Link-time entry.
    pub address: u64,
    /// `drv_dev_and_id::drv`.
    pub driver: u64,
    /// `drv_dev_and_id::dev`.
    pub device: u64,
    /// `pci_driver::probe`.
    pub probe: u64,
    /// `pci_dev::devfn`, 32 bits.
    pub devfn: u64,
    /// `pci_dev::bus`.
    pub bus: u64,
    /// `pci_bus::number`, 8 bits.
    pub number: u64,
    /// `pci_dev::resource`, an array of `struct resource`.
    pub resources: u64,
    /// Bytes of a `struct resource`.
    pub resource_size: u64,
    /// `resource::start`, `resource::end` (the last byte), `resource::flags`.
    pub resource: [u64; 3],
}

/// Which accesses are held, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Holds {
    /// Instructions by pairs; a vCPU that comes to one waits for another at the other.
    pub points: Vec<HoldPoint>,
    /// Accesses picked by chance.
    pub samples: Option<Samples>,
    /// How often each pair is tried.
    pub tries: u32,
    /// The longest hold, in milliseconds of the host; for the first two tries of a side.
    pub first_millis: u64,
    /// The hold of the next tries, in milliseconds.
    pub long_millis: u64,
    /// The hold of later tries, in milliseconds.
    pub short_millis: u64,
    /// The most often that a vCPU is sent back to its instruction in one hold.
    pub spins: u64,
    /// For how long threads are slowed down now and then where they come back from the kernel, in milliseconds; 0: not at all.
    pub stall_millis: u64,
}

impl Default for Holds {
    fn default() -> Holds {
        Holds {
            points: Vec::new(),
            samples: None,
            tries: 40,
            first_millis: 500,
            long_millis: 500,
            short_millis: 60,
            spins: 1 << 24,
            stall_millis: 0,
        }
    }
}

/// One instruction of a pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldPoint {
    /// The module.
    pub module: String,
    /// Index of a symbol in the ELF symbol table of the module's file.
    pub symbol: u32,
    /// Offset of the instruction from the symbol.
    pub offset: u64,
    /// The pair.
    pub pair: u32,
    /// Which side of the pair: 0 or 1.
    pub role: u8,
}

/// Accesses picked by chance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    /// One instruction in so many can be held.
    pub one_in: u32,
    /// What decides which.
    pub seed: u64,
    /// The hold, in milliseconds.
    pub millis: u64,
    /// The time between two holds, in milliseconds.
    pub pause_millis: u64,
}

/// How much is instrumented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The watched modules, and the entries and returns of hooked functions.
    #[default]
    Driver,
}

/// A function that runs once, early, at a high address; where its first bytes are seen at the right page
/// offset, the difference to its link-time address is the slide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// Link-time address.
    pub address: u64,
    /// Its first bytes; chosen so that no relocation applies to them.
    pub bytes: Vec<u8>,
    /// The slide is a multiple of this power of two (`CONFIG_PHYSICAL_ALIGN`).
    pub align: u64,
}

/// Link-time entry addresses of the functions whose first argument tells what happens to modules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleHooks {
    /// `fn(struct module *)`: laid out and relocated, nothing has run (`ftrace_module_init`).
    pub load: u64,
    /// `fn(struct module *, void *start, void *end)`: init sections given back (`ftrace_free_mem`).
    pub free: u64,
    /// `fn(struct module *)`: about to be freed (`ftrace_release_mod`).
    pub unload: u64,
}

/// Offsets in `struct module`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleLayout {
    /// Offset of the name (a char array).
    pub name: u64,
    /// Memory regions.
    pub regions: Vec<RegionLayout>,
    /// Offset of the pointer to `struct mod_kallsyms`.
    pub kallsyms: u64,
    /// In `struct mod_kallsyms`: offset of the pointer to the ELF symbols.
    pub symtab: u64,
    /// In `struct mod_kallsyms`: offset of the count (32 bits).
    pub num_symtab: u64,
}

/// One region of a module: offsets in `struct module` of a pointer and of a 32-bit size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionLayout {
    /// Offset of the pointer to the region's start.
    pub base: u64,
    /// Offset of the region's size (`unsigned int`).
    pub size: u64,
    /// `RegionFlags`.
    pub flags: u64,
}

/// Offsets of per-CPU variables from the GS base; `relative` says that they are link-time addresses to
/// which the slide is added (per-CPU symbols not based at zero).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerCpu {
    /// The current task pointer.
    pub current: u64,
    /// `preempt_count`, 32 bits.
    pub preempt_count: u64,
    /// The offsets are link-time addresses: add the slide.
    pub relative: bool,
}

/// Offsets in `struct task_struct`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskLayout {
    /// `pid`, 32 bits.
    pub pid: u64,
    /// `comm`, 16 bytes.
    pub comm: u64,
    /// `flags`, 32 bits.
    #[serde(default)]
    pub flags: Option<u64>,
}

/// A hooked kernel function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// The function's name.
    pub name: String,
    /// Link-time address of its entry.
    pub address: u64,
    /// How many integer arguments to record (0..=6).
    pub args: u8,
    /// Values to read through arguments at the entry, appended to the arguments.
    #[serde(default)]
    pub derefs: Vec<Deref>,
    /// Record the result: instrument the returns in `returns`.
    pub result: bool,
    /// Link-time ranges (start, end) whose returns end a call of this hook: the function itself, its cold
    /// part, and functions it leaves to by tail jump.
    pub returns: Vec<(u64, u64)>,
    /// Lists to read through arguments.
    #[serde(default)]
    pub lists: Vec<ListWalk>,
}

/// A list that a hook reads through one of its arguments: an array of entries, possibly in chained pieces
/// (`struct scatterlist`). Told with [`Kind::List`](crate::event::Kind::List).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListWalk {
    /// Which argument holds the pointer (0..=5).
    pub arg: u8,
    /// The argument points to a structure in which the pointer to the first entry has this offset (`sg_table.sgl`).
    pub through: Option<u64>,
    /// How many entries.
    pub count: ListCount,
    /// Bytes from entry to entry.
    pub stride: u64,
    /// Offset and size (1, 2, 4 or 8) of each value that is read of an entry.
    pub fields: Vec<(u64, u8)>,
    /// Offset of the word that says where the list goes on: bit 0 set: the rest of the word is the address of the next piece, and
    /// this entry is none; bit 1 set: the last entry.
    pub chain: Option<u64>,
    /// Read at the entry of the function.
    pub at_entry: bool,
    /// Read at its return.
    pub at_return: bool,
}

/// How many entries a list has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListCount {
    /// An argument says.
    Arg(u8),
    /// A 32-bit member of the structure that the argument points to says; its offset.
    Member(u64),
}

/// A value that a hook reads through one of its arguments, such as `kmem_cache::object_size`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deref {
    /// Which argument holds the pointer (0..=5).
    pub arg: u8,
    /// Offset from it.
    pub offset: u64,
    /// Bytes to read: 1, 2, 4 or 8, little endian, zero-extended.
    pub size: u8,
}
