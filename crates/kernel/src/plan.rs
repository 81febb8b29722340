//! The tracer's plan: addresses and offsets of one kernel, for `trace::config`.

use crate::closure;
use crate::needs;
use crate::summaries::SummaryTable;
use guardrail_binfmt::KernelError;
use guardrail_binfmt::KernelImage;
use guardrail_binfmt::ModuleImage;
use guardrail_binfmt::btf::{Param, Type};
use guardrail_binfmt::module::{ModuleSymbol, SymbolKind};
use guardrail_trace::client::ModuleList;
use guardrail_trace::config::{
    Hook, ModuleHook, ModuleHooks, ModuleLayout, ModuleTables, PerCpu, Probe, RegionLayout, TaskLayout,
    TracerConfig,
};
use guardrail_trace::event::{Global, RegionFlags};
use iced_x86::{Decoder, DecoderError, DecoderOptions, FlowControl};

/// Bytes of the probe: enough to be unique, few enough to find a stretch without relocations.
const PROBE_BYTES: u64 = 12;
/// The fewest bytes of a probe. The place of a function counts as well: KASLR keeps the low 21 bits of its address.
const FEWEST_PROBE_BYTES: u64 = 6;
/// The size of a page, behind whose end no block reaches.
const PAGE: u64 = 4096;
/// Functions that run once, early, before anything that is hooked.
const PROBES: [&str; 3] = ["x86_64_start_kernel", "x86_64_start_reservations", "start_kernel"];
/// Work queues that stand still while the system sleeps (kernel/workqueue.c).
const QUEUES: [(Global, &str); 2] = [
    (Global::FreezableQueue, "system_freezable_wq"),
    (Global::FreezableEfficientQueue, "system_freezable_power_efficient_wq"),
];
/// What a return jumps to: the first in the image, the others where the kernel patches itself for a
/// processor.
const RETURN_THUNKS: [&str; 6] = [
    "__x86_return_thunk",
    "retbleed_return_thunk",
    "srso_return_thunk",
    "srso_alias_return_thunk",
    "its_return_thunk",
    "call_depth_return_thunk",
];
/// Registers in the order of their hardware numbers.
const REGISTERS: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];

/// Works out the tracer's configuration. `watch` are module names, `log` is the path of the log.
pub fn tracer_config(
    image: &KernelImage,
    table: &SummaryTable,
    watch: &[String],
    log: &str,
) -> Result<TracerConfig, KernelError> {
    needs::check(image)?;
    let mut missing = Missing { image, names: Vec::new() };
    let modules = ModuleHooks {
        load: missing.function("ftrace_module_init"),
        free: missing.function("ftrace_free_mem"),
        unload: missing.function("ftrace_release_mod"),
    };
    let layout = module_layout(&mut missing);
    let task = TaskLayout {
        pid: missing.member("task_struct", "pid"),
        comm: missing.member("task_struct", "comm"),
        flags: image.btf().member_offset("task_struct", "flags"),
    };
    let per_cpu = per_cpu(&mut missing);
    let probe = probe(image);
    if probe.is_none() {
        missing.names.push("an early function without relocations".to_owned());
    }
    let globals = [
        (Global::PageOffsetBase, "page_offset_base"),
        (Global::VmemmapBase, "vmemmap_base"),
        (Global::VmallocBase, "vmalloc_base"),
    ];
    let mut globals: Vec<(Global, u64)> =
        globals.into_iter().map(|(global, name)| (global, missing.function(name))).collect();
    globals.extend(QUEUES.iter().filter_map(|&(global, name)| Some((global, image.address_of(name)?))));
    let Some(probe) = probe.filter(|_| missing.names.is_empty()) else {
        return Err(KernelError::Missing {
            release: image.release().to_owned(),
            missing: missing.names.join(", "),
        });
    };
    let return_thunks: Vec<u64> = RETURN_THUNKS.iter().filter_map(|name| image.address_of(name)).collect();
    let hooks = table
        .rows()
        .filter(|(_, row)| row.everywhere)
        .map(|(name, row)| Hook {
            name: name.to_owned(),
            address: row.address,
            args: row.args,
            derefs: row.derefs.clone(),
            result: true,
            returns: closure::returns(image, row.address, &return_thunks),
            lists: row.lists.clone(),
        })
        .collect();
    let indirect_thunks = (0u8..)
        .zip(REGISTERS)
        .filter_map(|(number, name)| {
            Some((image.address_of(&format!("__x86_indirect_thunk_{name}"))?, number))
        })
        .collect();
    Ok(TracerConfig {
        log: log.to_owned(),
        probe,
        kernel_text: kernel_text(image),
        watch: watch.to_vec(),
        modules,
        layout,
        per_cpu,
        task,
        hooks,
        module_hooks: Vec::new(),
        globals,
        arguments: arguments(image, table),
        indirect_thunks,
        return_thunks,
        unwind: None,
        scope: Default::default(),
        holds: Default::default(),
        gate: None,
    })
}

/// Where modules of this kernel have their ORC tables; `None` where they have none.
pub fn module_tables(image: &KernelImage) -> Option<ModuleTables> {
    let member = |name| image.btf().member_offset("module", name);
    Some(ModuleTables {
        count: member("arch.num_orcs")?,
        places: member("arch.orc_unwind_ip")?,
        entries: member("arch.orc_unwind")?,
    })
}

/// Hooks functions of modules that are not traced, where the knowledge has rows for them.
pub fn hook_modules(config: &mut TracerConfig, table: &SummaryTable, modules: &[ModuleImage]) {
    for (name, row) in table.elsewhere_rows().filter(|(_, row)| row.everywhere) {
        let is_it = |module: &&ModuleImage, symbol: &ModuleSymbol| {
            symbol.section.is_some()
                && symbol.kind == SymbolKind::Function
                && module.symbol_name(symbol) == name
        };
        let found = modules.iter().find_map(|module| {
            let symbol = module.symbols().iter().position(|symbol| is_it(&module, symbol))?;
            Some((module.name(), u32::try_from(symbol).ok()?))
        });
        let (Some((module, symbol)), Ok(hook)) = (found, u32::try_from(config.hooks.len())) else { continue };
        config.hooks.push(Hook {
            name: name.to_owned(),
            address: 0,
            args: row.args,
            derefs: row.derefs.clone(),
            result: false,
            returns: Vec::new(),
            lists: Vec::new(),
        });
        config.module_hooks.push(ModuleHook { module, symbol, hook });
    }
}

/// What clients need to know of modules and tasks, beyond [`tracer_config`].
pub fn module_list(image: &KernelImage) -> Result<ModuleList, KernelError> {
    let mut missing = Missing { image, names: Vec::new() };
    let list = ModuleList {
        head: missing.function("modules"),
        list: missing.member("module", "list"),
        strtab: missing.member("mod_kallsyms", "strtab"),
        switch: image.address_of("__switch_to"),
    };
    match missing.names.is_empty() {
        true => Ok(list),
        false => Err(KernelError::Missing {
            release: image.release().to_owned(),
            missing: missing.names.join(", "),
        }),
    }
}

/// Collects what a kernel lacks, so that one error names all of it.
struct Missing<'a> {
    image: &'a KernelImage,
    names: Vec<String>,
}

impl Missing<'_> {
    fn function(&mut self, name: &str) -> u64 {
        self.image.address_of(name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            0
        })
    }

    fn member(&mut self, structure: &str, path: &str) -> u64 {
        self.image.btf().member_offset(structure, path).unwrap_or_else(|| {
            self.names.push(format!("struct {structure}.{path}"));
            0
        })
    }
}

/// How many arguments exported functions take, as far as prototypes show it. Functions that may take six are
/// left out.
fn arguments(image: &KernelImage, table: &SummaryTable) -> Vec<(u64, u8)> {
    let count = |name: &str| {
        let proto = image.btf().func_proto(name).filter(|proto| !proto.variadic)?;
        let plain = |param: &Param| match param.ty {
            Type::Int { bits: ..=64, .. } | Type::Ptr(_) => param.register,
            _ => None,
        };
        let registers: Option<Vec<u8>> = proto.params.iter().map(plain).collect();
        let count = registers?.into_iter().map(|register| register + 1).max().unwrap_or(0);
        Some(count.max(table.row(name).map_or(0, |row| row.args)))
    };
    let exported =
        image.symbols().filter_map(|symbol| symbol.name.strip_prefix("__ksymtab_").map(str::to_owned));
    let function = |name: String| Some((image.address_of(&name)?, count(&name).filter(|&count| count < 6)?));
    exported.filter_map(function).collect()
}

/// The link-time range from the first to the last executable section.
fn kernel_text(image: &KernelImage) -> (u64, u64) {
    let text = |(_, start, size): (&str, u64, u64)| image.is_text(start).then_some((start, start + size));
    image
        .sections()
        .filter_map(text)
        .fold((u64::MAX, 0), |(first, last), (start, end)| (first.min(start), last.max(end)))
}

/// An early function with a stretch of bytes that KASLR leaves alone, all of which are in its first block.
fn probe(image: &KernelImage) -> Option<Probe> {
    let relocated = image.relocated_places();
    PROBES.iter().find_map(|name| {
        let address = image.address_of(name)?;
        let block = first_block(image.bytes_at(address, PROBE_BYTES)?, address);
        let bytes = image.bytes_at(address, block).filter(|_| block >= FEWEST_PROBE_BYTES)?;
        // A relocated word that begins up to seven bytes earlier reaches into the stretch.
        let first = relocated.partition_point(|&place| place + 8 <= address);
        let free = relocated.get(first).is_none_or(|&place| place >= address + block);
        free.then(|| Probe { address, bytes: bytes.to_vec(), align: image.align() })
    })
}

/// How many bytes of this code certainly are in the block of instructions that begins with it. A block ends with a
/// branch, with a privileged instruction, or with the page. Code that is cut off within an instruction counts to its
/// end, since a block has all bytes of its last one.
fn first_block(code: &[u8], address: u64) -> u64 {
    let page_left = PAGE - address % PAGE;
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    while decoder.can_decode() {
        let before = decoder.position() as u64;
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            let cut_off = decoder.last_error() == DecoderError::NoMoreBytes;
            return if cut_off { (code.len() as u64).min(page_left) } else { before };
        }
        let end = before + instruction.len() as u64;
        if end > page_left {
            return before;
        }
        if instruction.flow_control() != FlowControl::Next || instruction.is_privileged() {
            return end;
        }
    }
    code.len() as u64
}

/// `struct module`: one `module_layout` for core and one for init up to 6.3, an array by type since.
fn module_layout(missing: &mut Missing<'_>) -> ModuleLayout {
    let btf = missing.image.btf();
    let name = missing.member("module", "name");
    let kallsyms = missing.member("module", "kallsyms");
    let symtab = missing.member("mod_kallsyms", "symtab");
    let num_symtab = missing.member("mod_kallsyms", "num_symtab");
    let mut regions = Vec::new();
    if btf.member_offset("module", "core_layout").is_some() {
        for (part, flags) in
            [("core_layout", RegionFlags::TEXT), ("init_layout", RegionFlags::TEXT | RegionFlags::INIT)]
        {
            regions.push(RegionLayout {
                base: missing.member("module", &format!("{part}.base")),
                size: missing.member("module", &format!("{part}.size")),
                flags,
            });
        }
    } else {
        let start = missing.member("module", "mem");
        let base = missing.member("module_memory", "base");
        let size = missing.member("module_memory", "size");
        let stride = btf.struct_named("module_memory").and_then(|id| btf.size_of(id)).unwrap_or(0);
        let types = [
            ("MOD_TEXT", RegionFlags::TEXT),
            ("MOD_DATA", 0),
            ("MOD_RODATA", RegionFlags::READ_ONLY),
            ("MOD_RO_AFTER_INIT", 0),
            ("MOD_INIT_TEXT", RegionFlags::TEXT | RegionFlags::INIT),
            ("MOD_INIT_DATA", RegionFlags::INIT),
            ("MOD_INIT_RODATA", RegionFlags::INIT | RegionFlags::READ_ONLY),
        ];
        for (name, flags) in types {
            match btf.enum_value_in("mod_mem_type", name).and_then(|value| u64::try_from(value).ok()) {
                Some(index) => {
                    let at = start + index.min(64) * stride;
                    regions.push(RegionLayout { base: at + base, size: at + size, flags });
                }
                None => missing.names.push(name.to_owned()),
            }
        }
    }
    ModuleLayout { name, regions, kallsyms, symtab, num_symtab }
}

/// Offset of a vCPU's `preempt_count` from its GS base, and whether the kernel's slide has to be added.
pub fn preempt_count(image: &KernelImage) -> Option<(u64, bool)> {
    let mut missing = Missing { image, names: Vec::new() };
    let places = per_cpu(&mut missing);
    missing.names.is_empty().then_some((places.preempt_count, places.relative))
}

/// `current` and `preempt_count`: symbols of their own (up to 6.1 and since 6.15), or in `pcpu_hot`
/// (between).
fn per_cpu(missing: &mut Missing<'_>) -> PerCpu {
    let image = missing.image;
    let (current, preempt_count) = match image.address_of("pcpu_hot") {
        Some(hot) => (
            hot.wrapping_add(missing.member("pcpu_hot", "current_task")),
            hot.wrapping_add(missing.member("pcpu_hot", "preempt_count")),
        ),
        None => (missing.function("current_task"), missing.function("__preempt_count")),
    };
    // Per-CPU symbols were offsets from zero until 6.15. Since then they are addresses in the image. The GS
    // base is the distance from there to the CPU's copy.
    PerCpu { current, preempt_count, relative: current >> 63 != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_ends_with_the_first_block() {
        const AT: u64 = 0xffff_ffff_8212_9395;
        // cmpw $0, x(%rip); jne: a kernel without tracing of functions may branch this early.
        let branch = [0x66, 0x83, 0x3d, 0x49, 0xa6, 0x0d, 0, 0, 0x75, 0x0c, 0x48, 0x03];
        assert_eq!(first_block(&branch, AT), 10);
        // push, push, mov, mov %cr4, and a part of another mov.
        let privileged = [0x55, 0x53, 0x48, 0x89, 0xfb, 0x0f, 0x20, 0xe0, 0x65, 0x48, 0x89, 0x05];
        assert_eq!(first_block(&privileged, AT), 8);
        let plain = [0x55, 0x53, 0x48, 0x89, 0xfb, 0x90, 0x90, 0x90, 0x65, 0x48, 0x89, 0x05];
        assert_eq!(first_block(&plain, AT), 12);
        // At the end of a page, what reaches into the next one is not counted on.
        assert_eq!(first_block(&plain, 0xffff_ffff_8212_9ffc), 2);
        assert_eq!(first_block(&plain, 0xffff_ffff_8212_9ff6), 10);
        assert_eq!(first_block(&[0xc3; 12], AT), 1);
        assert_eq!(first_block(&[0x55, 0x06, 0x06, 0x06], AT), 1);
        assert_eq!(first_block(&[], AT), 0);
    }
}
