//! The tracer's configuration: plain addresses and offsets, which the host finds in the kernel image.
//!
//! The host writes a [`TracerConfig`] as JSON into the run folder, and names the file on QEMU's command
//! line (`-plugin libguardrail_tracer.so,config=FILE`). All addresses are link-time addresses. The
//! tracer finds the KASLR slide with [`Probe`] and adds it.

use crate::event::Global;
use serde::{Deserialize, Serialize};

/// The whole configuration of the tracer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracerConfig {
    /// Path of the shared-memory log. The host creates it before QEMU starts.
    pub log: String,
    /// The function by which the tracer finds the KASLR slide.
    pub probe: Probe,
    /// Link-time range (start, end) of the kernel image's text. Code outside it and outside watched
    /// modules is never instrumented.
    pub kernel_text: (u64, u64),
    /// Names of the modules to trace, as `struct module` spells them (with `_`, not `-`).
    pub watch: Vec<String>,
    /// Functions that the kernel calls when it loads a module, frees init sections, and unloads a
    /// module.
    pub modules: ModuleHooks,
    /// Offsets in `struct module` of the members that the tracer reads.
    pub layout: ModuleLayout,
    /// Per-CPU variables, as offsets from the GS base.
    pub per_cpu: PerCpu,
    /// Offsets in `struct task_struct`.
    pub task: TaskLayout,
    /// Kernel functions whose every call is logged while a watched module is loaded. The index is the
    /// hook number in the log.
    pub hooks: Vec<Hook>,
    /// Where hooks are whose functions are in modules that are not traced.
    #[serde(default)]
    pub module_hooks: Vec<ModuleHook>,
    /// Values to read from the guest when the first watched module is loaded: the name and its link-time
    /// address.
    pub globals: Vec<(Global, u64)>,
    /// Link-time addresses of functions that modules call, with the number of their integer arguments
    /// (0..=5). Functions that are absent may use all argument registers.
    #[serde(default)]
    pub arguments: Vec<(u64, u8)>,
    /// Link-time addresses of `__x86_indirect_thunk_<reg>`, with the hardware number of the register
    /// (rax = 0 … r15 = 15).
    pub indirect_thunks: Vec<(u64, u8)>,
    /// Link-time addresses of return thunks. A jump to one is a return.
    pub return_thunks: Vec<u64>,
    /// How to walk the kernel's stacks; `None` where the log has no stacks.
    #[serde(default)]
    pub unwind: Option<Unwind>,
    /// Which code is instrumented.
    #[serde(default)]
    pub scope: Scope,
    /// Accesses that are held to see which access arrives meanwhile.
    #[serde(default)]
    pub holds: Holds,
    /// How device accesses are held until they are checked; `None` where they are not held.
    #[serde(default)]
    pub gate: Option<Gate>,
}

/// How the gate holds device accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gate {
    /// The longest hold of an access, in milliseconds of host time. After that the gate closes.
    pub limit_millis: u64,
    /// True where an access that reached a device without being held closes the gate.
    pub strict: bool,
    /// True where a vCPU goes on after a write to a device's memory, which arrives when it has been checked.
    pub posts: bool,
    /// Link-time addresses of functions at whose entry the writes so far must have arrived.
    pub arrivals: Vec<u64>,
    /// Link-time addresses of functions at whose entry writes arrive that have been checked.
    pub deliveries: Vec<u64>,
    /// Physical address ranges (start, end) of the guest's RAM. Everything else is devices.
    pub ram: Vec<(u64, u64)>,
    /// Link-time ranges (start, end) of kernel functions that access devices for their drivers.
    pub accessors: Vec<(u64, u64)>,
    /// Functions that access PCI configuration space.
    pub config_space: Vec<ConfigAccessor>,
    /// Link-time addresses of functions that change the meaning of device addresses.
    pub remaps: Vec<u64>,
    /// The function by which the kernel binds drivers to PCI devices; `None` where the kernel has no
    /// PCI.
    pub probe: Option<PciProbe>,
    /// The function by which the kernel binds drivers to devices of all buses; `None` where it is not known.
    pub child_probe: Option<ChildProbe>,
}

/// A kernel function `int f(unsigned seg, unsigned bus, unsigned devfn, int reg, int len, u32 value)`. A
/// reading function has a pointer to the value instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigAccessor {
    /// Link-time address of the function's entry.
    pub address: u64,
    /// True where the function writes.
    pub write: bool,
}

/// The function `long f(struct drv_dev_and_id *)`, which calls a driver's probe function for a PCI
/// device (drivers/pci/pci-driver.c). The other fields are offsets in the named structures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciProbe {
    /// Link-time address of the function's entry.
    pub address: u64,
    /// Offset of `drv_dev_and_id::drv`.
    pub driver: u64,
    /// Offset of `drv_dev_and_id::dev`.
    pub device: u64,
    /// Offset of `pci_driver::probe`.
    pub probe: u64,
    /// Offset of `pci_dev::devfn`, 32 bits.
    pub devfn: u64,
    /// Offset of `pci_dev::bus`.
    pub bus: u64,
    /// Offset of `pci_bus::number`, 8 bits.
    pub number: u64,
    /// Offset of `pci_dev::resource`, an array of `struct resource`.
    pub resources: u64,
    /// Size of a `struct resource` in bytes.
    pub resource_size: u64,
    /// Offsets of `resource::start`, `resource::end` (the last byte) and `resource::flags`.
    pub resource: [u64; 3],
}

/// The function `int f(struct device *, struct device_driver *)`, which binds a driver to a device of any bus
/// (`really_probe` in drivers/base/dd.c). It serves for devices behind a PCI device: of virtio, USB, SCSI. The
/// other fields are offsets in the named structures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildProbe {
    /// Link-time address of the function's entry.
    pub address: u64,
    /// Link-time address of `pci_bus_type`.
    pub pci_bus: u64,
    /// Offset of `device_driver::owner`.
    pub owner: u64,
    /// Offset of `module::exit`, which is in the module's code.
    pub exit: u64,
    /// Offset of `device::parent`.
    pub parent: u64,
    /// Offset of `device::bus`.
    pub bus: u64,
    /// Offset of `pci_dev::dev`.
    pub in_pci_dev: u64,
}

/// Which accesses are held, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Holds {
    /// Instructions in pairs. A vCPU that reaches one side waits for another context at the other side.
    pub points: Vec<HoldPoint>,
    /// Accesses that are picked at random; `None` where none are.
    pub samples: Option<Samples>,
    /// How often each pair is tried.
    pub tries: u32,
    /// The hold of the first two tries of a side, in milliseconds of host time. No hold is longer.
    pub first_millis: u64,
    /// The hold of the next tries, in milliseconds of host time.
    pub long_millis: u64,
    /// The hold of later tries, in milliseconds of host time.
    pub short_millis: u64,
    /// How often at most a vCPU returns to its instruction in one hold.
    pub spins: u64,
    /// How long a thread is sometimes delayed when it returns from the kernel, in milliseconds; 0 for
    /// never.
    pub stall_millis: u64,
    /// How long the held side stays after the other one has made its access, in milliseconds, so that the
    /// other goes on; 0 to be released at once.
    pub linger_millis: u64,
    /// True where a pair whose sides have met is held no more, so that what follows does not come from the holds.
    pub once: bool,
    /// Where set, the only side that is held. Only contexts on another CPU meet it: an interrupt on its own CPU ends
    /// before the held side goes on.
    pub held_apart: Option<u8>,
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
            linger_millis: 0,
            once: false,
            held_apart: None,
        }
    }
}

/// One instruction of a pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldPoint {
    /// Name of the module with the instruction.
    pub module: String,
    /// Index of a symbol in the ELF symbol table of the module's file.
    pub symbol: u32,
    /// Offset of the instruction from the symbol, in bytes.
    pub offset: u64,
    /// Number of the pair.
    pub pair: u32,
    /// Side of the pair: 0 or 1.
    pub role: u8,
    /// True where it is no access, but the beginning of the driver's function in which the kernel called it on the
    /// way to the access. The other side is then worth a hold.
    #[serde(default)]
    pub approach: bool,
}

/// Accesses that are picked at random.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    /// One instruction in this many can be held.
    pub one_in: u32,
    /// Seed of the random choice.
    pub seed: u64,
    /// The hold, in milliseconds of host time.
    pub millis: u64,
    /// The time between two holds, in milliseconds of host time.
    pub pause_millis: u64,
}

/// The tables by which the kernel unwinds its own stacks (ORC; arch/x86/include/asm/orc_types.h).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unwind {
    /// Path of a file with the two tables of the kernel's image: the places of the entries, then the
    /// entries.
    pub tables: String,
    /// Link-time address of the table of places.
    pub places_at: u64,
    /// Size of the table of places, in bytes.
    pub places_size: u64,
    /// Where modules have theirs; `None` where that is not known.
    pub module: Option<ModuleTables>,
}

/// Offsets in `struct module` of what leads to the module's ORC tables, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleTables {
    /// Offset of the number of entries, 32 bits.
    pub count: u64,
    /// Offset of the pointer to the places.
    pub places: u64,
    /// Offset of the pointer to the entries.
    pub entries: u64,
}

/// Which code is instrumented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The watched modules, and the entries and returns of hooked functions.
    #[default]
    Driver,
}

/// A function that runs once, early, at a high address. When its first bytes run at the right page
/// offset, the difference to its link-time address is the slide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// Link-time address of the function.
    pub address: u64,
    /// Its first bytes, chosen so that no relocation applies to them.
    pub bytes: Vec<u8>,
    /// The slide is a multiple of this power of two (`CONFIG_PHYSICAL_ALIGN`).
    pub align: u64,
}

/// Link-time addresses of the functions that the kernel calls with a module as first argument when the
/// module's state changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleHooks {
    /// `fn(struct module *)`: the module is laid out and relocated, but has not run
    /// (`ftrace_module_init`).
    pub load: u64,
    /// `fn(struct module *, void *start, void *end)`: the kernel frees init sections
    /// (`ftrace_free_mem`).
    pub free: u64,
    /// `fn(struct module *)`: the kernel is about to free the module (`ftrace_release_mod`).
    pub unload: u64,
}

/// Offsets in `struct module`, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleLayout {
    /// Offset of the name (a char array).
    pub name: u64,
    /// Offsets of the memory regions' members.
    pub regions: Vec<RegionLayout>,
    /// Offset of the pointer to `struct mod_kallsyms`.
    pub kallsyms: u64,
    /// Offset in `struct mod_kallsyms` of the pointer to the ELF symbols.
    pub symtab: u64,
    /// Offset in `struct mod_kallsyms` of the symbol count (32 bits).
    pub num_symtab: u64,
}

/// Offsets in `struct module` of one region: of a pointer and of a 32-bit size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionLayout {
    /// Offset of the pointer to the region's start.
    pub base: u64,
    /// Offset of the region's size (`unsigned int`).
    pub size: u64,
    /// The region's `RegionFlags`.
    pub flags: u64,
}

/// Offsets of per-CPU variables from the GS base. If `relative` is set, they are link-time addresses to
/// which the slide is added (per-CPU symbols not based at zero).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerCpu {
    /// The pointer to the current task.
    pub current: u64,
    /// `preempt_count`, 32 bits.
    pub preempt_count: u64,
    /// True where the offsets are link-time addresses, to which the tracer adds the slide.
    pub relative: bool,
}

/// Offsets in `struct task_struct`, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskLayout {
    /// Offset of `pid`, 32 bits.
    pub pid: u64,
    /// Offset of `comm`, 16 bytes.
    pub comm: u64,
    /// Offset of `flags`, 32 bits; `None` where not known.
    #[serde(default)]
    pub flags: Option<u64>,
}

/// A hooked kernel function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// Name of the function, for readers of the log.
    pub name: String,
    /// Link-time address of its entry.
    pub address: u64,
    /// Number of integer arguments to log (0..=6).
    pub args: u8,
    /// Values to read through arguments at the entry. They follow the arguments in the log.
    #[serde(default)]
    pub derefs: Vec<Deref>,
    /// True to log the result, by instrumenting the returns in `returns`.
    pub result: bool,
    /// Link-time ranges (start, end) whose returns end a call of this hook. They cover the function, its
    /// cold part, and functions that it leaves to by tail jump.
    pub returns: Vec<(u64, u64)>,
    /// Lists to read through arguments.
    #[serde(default)]
    pub lists: Vec<ListWalk>,
}

/// A hooked function in a module that is not traced. Its hook has no address, and its returns are not logged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleHook {
    /// Name of the module.
    pub module: String,
    /// Index of the function in the ELF symbol table of the module's file.
    pub symbol: u32,
    /// The hook's number.
    pub hook: u32,
}

/// A list that a hook reads through one of its arguments: an array of entries, possibly in chained
/// pieces (`struct scatterlist`). Logged as [`Kind::List`](crate::event::Kind::List).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListWalk {
    /// Index of the argument that holds the pointer (0..=5).
    pub arg: u8,
    /// If set, the argument points to a structure instead. The pointer to the first entry has this
    /// offset in it (`sg_table.sgl`).
    pub through: Option<u64>,
    /// Source of the number of entries.
    pub count: ListCount,
    /// Distance from one entry to the next, in bytes.
    pub stride: u64,
    /// Offset in the entry and size (1, 2, 4 or 8 bytes) of each value to read.
    pub fields: Vec<(u64, u8)>,
    /// Offset of the word that links the pieces. With bit 0 set, the rest of the word is the address of
    /// the next piece, and this entry holds no data. With bit 1 set, this entry is the last.
    pub chain: Option<u64>,
    /// True to read the list at the function's entry.
    pub at_entry: bool,
    /// True to read the list at the function's return.
    pub at_return: bool,
}

/// Source of a list's number of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListCount {
    /// The argument with this index.
    Arg(u8),
    /// A 32-bit member, at this offset in the structure that the argument points to.
    Member(u64),
}

/// A value that a hook reads through one of its arguments, such as `kmem_cache::object_size`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deref {
    /// Index of the argument that holds the pointer (0..=5).
    pub arg: u8,
    /// Offset from the pointer, in bytes.
    pub offset: u64,
    /// Bytes to read: 1, 2, 4 or 8, little endian, zero-extended.
    pub size: u8,
}
