//! What the analysis needs to know about kernel and modules. Implemented over `guardrail-kernel`, and by hand
//! in tests.

use guardrail_finding::Source;
use guardrail_knowledge::chart::Chart;
use guardrail_knowledge::effect::Summary;
use std::sync::Arc;

/// A named range of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// First address of the range.
    pub start: u64,
    /// The address behind the last one.
    pub end: u64,
    /// Name of the function or variable there.
    pub name: Arc<str>,
}

/// Finds the range that holds `addr` in a list sorted by start.
pub(crate) fn find(ranges: &[Range], addr: u64) -> Option<&Range> {
    let at = ranges.partition_point(|r| r.start <= addr).checked_sub(1)?;
    ranges.get(at).filter(|r| addr < r.end)
}

/// Returns the source lines of an address; `None` where they are not known.
pub type LineLookup = Box<dyn Fn(u64) -> Option<Source> + Send>;

/// A structure type that a pointer points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointed {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// It ends with an array without a length, so that its memory may be longer.
    pub open: bool,
}

/// Bytes of a module's file that nothing changes in memory, such as texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Guest address of the first byte.
    pub start: u64,
    /// The bytes; the loads of a module share them.
    pub bytes: Arc<[u8]>,
}

/// The addresses of a loaded module's parts.
#[derive(Default)]
pub struct ModuleMap {
    /// Functions, sorted by address.
    pub functions: Vec<Range>,
    /// Variables in writable sections, sorted by address.
    pub data: Vec<Range>,
    /// Bytes in writable sections that follow a variable and belong to none, sorted by address; the name is
    /// the variable's.
    pub gaps: Vec<Range>,
    /// Constants whose bytes are known, sorted by address; no two overlap.
    pub constants: Vec<Constant>,
    /// Addresses of instructions that may fault, sorted.
    pub ex_table: Vec<u64>,
    /// The names of the modules that stay loaded as long as it does.
    pub needs: Vec<String>,
    /// Addresses of pushes that only make room on the stack, sorted.
    pub rooms: Vec<u64>,
    /// Source lines by address in memory; `None` where the file has none.
    pub lines: Option<LineLookup>,
}

impl std::fmt::Debug for ModuleMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModuleMap").field("functions", &self.functions.len()).finish_non_exhaustive()
    }
}

/// A region of a module, as the log holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First guest address.
    pub start: u64,
    /// Length in bytes.
    pub size: u64,
    /// Flags of `RegionFlags`.
    pub flags: u64,
}

/// Knowledge about the kernel and its modules.
pub trait World {
    /// The kernel function at a link-time address, and the offset in it.
    fn function_at(&self, link_address: u64) -> Option<(String, u64)>;
    /// What the function with hook `number` does; `None` where there is no such hook.
    fn hook(&self, number: u64) -> Option<Arc<Summary>>;
    /// The number of arguments that hook `number` records before the values that are read through them.
    fn hook_args(&self, number: u64) -> usize;
    /// Whether the log has the returns of hook `number`. It does not for functions of modules.
    fn hook_returns(&self, _number: u64) -> bool {
        true
    }
    /// Link-time address of hook `number`, or 0.
    fn hook_address(&self, number: u64) -> u64;
    /// What the kernel function with this name does, for calls from the driver.
    fn call(&self, name: &str) -> Arc<Summary>;
    /// What a function of a module that is not watched does.
    fn call_other(&self, _module: &str, name: &str) -> Arc<Summary> {
        Arc::new(Summary::unknown(name))
    }
    /// The map of the module `name`, watched or not, at the addresses of its ELF symbols. `None` where its
    /// file is not available.
    fn module(&self, name: &str, regions: &[Region], symbols: &[u64]) -> Option<ModuleMap>;
    /// Size of `struct page` in bytes.
    fn page_struct_size(&self) -> u64 {
        64
    }
    /// The charts of kernel objects' protocols.
    fn charts(&self) -> Arc<[Chart]> {
        Arc::from([])
    }
    /// Where per-CPU variables begin, from a vCPU's GS base. Where this is a link-time address, the caller
    /// adds the slide.
    fn per_cpu_start(&self) -> u64 {
        0
    }
    /// Link-time address of the mutex that `rtnl_lock` takes.
    fn rtnl_mutex(&self) -> Option<u64> {
        None
    }
    /// Offset of `preempt_count` from a vCPU's GS base. Where the flag is true, it is a link-time address and
    /// the caller adds the slide.
    fn preempt_count(&self) -> Option<(u64, bool)> {
        None
    }
    /// The name of the only structure type of this size that `module` defines; `None` where there is not
    /// exactly one. For types with known names, [`World::field`] is called directly.
    fn type_of_size(&self, _module: &str, _size: u64) -> Option<String> {
        None
    }
    /// The member at an offset of a structure type of the module or the kernel, as text like
    /// `rx_ring.next_to_clean` or `slots[3]`.
    fn field(&self, _module: &str, _structure: &str, _offset: u64) -> Option<String> {
        None
    }
    /// The lock that begins at an offset of a structure type of the module or the kernel, by its member's name.
    fn lock_field(&self, _module: &str, _structure: &str, _offset: u64) -> Option<String> {
        None
    }
    /// What the pointer at an offset of a structure type of the module or the kernel points to; `None` where
    /// that is no pointer to a structure with a name.
    fn pointed_at(&self, _module: &str, _structure: &str, _offset: u64) -> Option<Pointed> {
        None
    }
    /// Size of a structure type of the kernel, in bytes.
    fn size_of(&self, _structure: &str) -> Option<u64> {
        None
    }
    /// The bit of `__GFP_DIRECT_RECLAIM` in gfp flags: the allocation may sleep.
    fn gfp_reclaim(&self) -> u64 {
        0x400
    }
    /// Offset in `struct device` of the byte that says whether `dma_sync_*` calls can be left out. The
    /// kernel's inline functions read it (6.10 and later); `None` in other kernels.
    fn dma_skip_sync(&self) -> Option<u64> {
        None
    }
    /// Whether the kernel's drivers release spin locks and rwlocks without a call.
    fn inlines_unlock(&self) -> bool {
        false
    }

    /// Whether the kernel keeps redzones around all objects of its slab caches (`slub_debug=Z`).
    fn redzones(&self) -> bool {
        false
    }
    /// The bit of `SLAB_TYPESAFE_BY_RCU` in the flags of a slab cache.
    fn slab_typesafe(&self) -> u64 {
        0x8_0000
    }
    /// The bit of `__GFP_ZERO` in gfp flags.
    fn gfp_zero(&self) -> u64 {
        0x100
    }
}
