//! The tracer's state: one instance for the process.

use super::coherent::Coherent;
use super::control::Control;
use super::gate::Gate;
use super::holds::Holds;
use super::posted::Posted;
use super::stacks::Stacks;
use super::vcpu::{GS_BASE, Vcpu};
use crate::code::Addresses;
use crate::code::kernel_entries::{Entry, kernel_entries};
use guardrail_plugin::cpu::VcpuCell;
use guardrail_plugin::entries::Entries;
use guardrail_plugin::hooked::Hooked;
use guardrail_plugin::ram::Ram;
use guardrail_plugin::ranges::RangeSet;
use guardrail_trace::config::{self, TracerConfig};
use guardrail_trace::event::{Global, Head, Kind, MAX_ARGS};
use guardrail_trace::log::{Closed, FailReason, Log, Space};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

/// Stands for no vCPU.
const NONE: u32 = u32::MAX;

static TRACER: OnceLock<Tracer> = OnceLock::new();

thread_local! {
    /// Index of the vCPU that this thread ran last.
    static MINE: Cell<u32> = const { Cell::new(NONE) };
}

/// State that all callbacks share.
pub struct Tracer {
    pub config: TracerConfig,
    pub entries: Entries<Entry>,
    /// Hooked functions in modules that are not watched and loaded: address, module and number of the hook.
    pub module_hooks: RwLock<Vec<(u64, u64, u32)>>,
    /// Address ranges of watched modules, tagged with the generation.
    pub watched: RangeSet,
    /// True while at least one watched module is loaded.
    pub active: AtomicBool,
    /// Number of loads of watched modules so far.
    pub generation: AtomicU64,
    /// Start of the address range in which accesses may go to devices.
    pub devices_from: AtomicU64,
    /// End of that range. Addresses at the very top may belong to devices too.
    pub devices_to: AtomicU64,
    /// `page_offset_base`, or `u64::MAX` before it is known.
    pub direct_map: AtomicU64,
    /// The guest's RAM, read without QEMU.
    pub ram: Ram,
    /// Addresses where driver code resumes or begins.
    pub sites: RwLock<Sites>,
    /// Stacks of the kernel.
    pub stacks: Stacks,
    /// Calls of hooked functions that have not returned.
    pub hooked: Hooked,
    /// Accesses that are held to see which access arrives meanwhile.
    pub holds: Holds,
    /// The gate; `None` where device accesses are not held.
    pub gate: Option<Gate>,
    slide_known: AtomicBool,
    slide: AtomicU64,
    indirect_thunks: FxHashMap<u64, u8>,
    return_thunks: FxHashSet<u64>,
    arguments: FxHashMap<u64, u8>,
    interrupted: Mutex<FxHashMap<u64, Interrupted>>,
    interrupted_count: AtomicUsize,
    control: Mutex<Control>,
    vcpus: Box<[VcpuCell<Vcpu>]>,
    /// GS bases of vCPUs that share a thread; 0 where not known yet.
    gs_bases: Box<[AtomicU64]>,
    /// True where vCPUs share one thread.
    single: AtomicBool,
    current: AtomicU32,
    log: Log,
}

/// Addresses in watched modules, collected at translation.
#[derive(Default)]
pub struct Sites {
    /// Addresses after calls, where the kernel may return to.
    pub returns: FxHashSet<u64>,
    /// First addresses of functions.
    pub functions: FxHashSet<u64>,
}

/// Driver code that was interrupted and has not continued yet. The key is its rsp.
#[derive(Clone, Copy)]
struct Interrupted {
    pc: u64,
    /// True for an exception, whose handler may continue the driver elsewhere.
    exception: bool,
}

/// The tracer; `None` before it is installed.
#[inline]
pub fn tracer() -> Option<&'static Tracer> {
    TRACER.get()
}

/// A method that finds the vCPU of a callback: [`Tracer::running`] or a similar one.
pub type Find = unsafe fn(&Tracer, u32) -> Option<&'static mut Vcpu>;

/// Returns the tracer, and the vCPU of a callback.
///
/// # Safety
/// The caller is a callback for this vCPU.
#[inline(always)]
pub unsafe fn entered(find: Find, index: u32) -> Option<(&'static Tracer, &'static mut Vcpu)> {
    let tracer = tracer()?;
    // SAFETY: passed on to the caller.
    Some((tracer, unsafe { find(tracer, index) }?))
}

/// Like [`entered`], with the data from the callback's registration.
///
/// # Safety
/// The caller is a callback for this vCPU, and `data` points to a `T` that is never freed.
#[inline(always)]
pub unsafe fn entered_with<T>(
    find: Find,
    index: u32,
    data: *mut c_void,
) -> Option<(&'static Tracer, &'static mut Vcpu, &'static T)> {
    // SAFETY: passed on to the caller.
    let ((tracer, vcpu), data) = unsafe { (entered(find, index)?, &*data.cast::<T>()) };
    Some((tracer, vcpu, data))
}

/// Sets up the tracer. An error is one sentence for the user.
pub fn install(config: TracerConfig, smp: u32) -> Result<(), String> {
    let log = Log::open(&config.log).map_err(|e| chain(&e))?;
    if log.vcpus() < smp {
        return Err(format!(
            "the log {} has {} vCPU rings, but QEMU has {smp} vCPUs",
            config.log,
            log.vcpus()
        ));
    }
    let writer = |ring| log.writer(ring).map_err(|e| chain(&e));
    let vcpus = (0..log.vcpus())
        .map(|ring| Ok(VcpuCell::new(Vcpu::new(writer(ring)?))))
        .collect::<Result<Box<[_]>, String>>()?;
    let holds = Holds::new(&config.holds);
    // An access that is held for a race has to run as it is.
    let posts = config.gate.as_ref().filter(|gate| gate.posts && !holds.wanted());
    let ram_end = |gate: &config::Gate| gate.ram.iter().map(|ram| ram.1).max().unwrap_or(0);
    let coherent = posts.and_then(|gate| Coherent::new(ram_end(gate), &config.hooks));
    let tracer = Tracer {
        entries: kernel_entries(&config),
        module_hooks: RwLock::default(),
        watched: RangeSet::new(),
        active: AtomicBool::new(false),
        generation: AtomicU64::new(0),
        devices_from: AtomicU64::new(0),
        devices_to: AtomicU64::new(u64::MAX),
        direct_map: AtomicU64::new(u64::MAX),
        ram: Ram::default(),
        sites: RwLock::default(),
        stacks: Stacks::new(&config)?,
        hooked: Hooked::default(),
        holds,
        gate: config.gate.clone().map(|gate| Gate::new(gate, coherent.map(Posted::new))),
        slide_known: AtomicBool::new(false),
        slide: AtomicU64::new(0),
        indirect_thunks: config.indirect_thunks.iter().copied().collect(),
        return_thunks: config.return_thunks.iter().copied().collect(),
        arguments: config.arguments.iter().copied().collect(),
        interrupted: Mutex::default(),
        interrupted_count: AtomicUsize::new(0),
        control: Mutex::new(Control::new(writer(log.control_ring())?)),
        gs_bases: (0..smp).map(|_| AtomicU64::new(0)).collect(),
        vcpus,
        single: AtomicBool::new(false),
        current: AtomicU32::new(NONE),
        config,
        log,
    };
    TRACER.set(tracer).map_err(|_| "the tracer is loaded twice; name it once on QEMU's command line".into())
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

impl Tracer {
    /// The KASLR slide; `None` before it is known.
    #[inline]
    pub fn slide(&self) -> Option<u64> {
        self.slide_known.load(Acquire).then(|| self.slide.load(Relaxed))
    }

    /// Stores the slide, from a translation callback. Returns false where it was known already.
    pub fn set_slide(&self, slide: u64) -> bool {
        let mut control = self.control_in_translation();
        if self.slide_known.load(Acquire) {
            return false;
        }
        self.slide.store(slide, Relaxed);
        self.slide_known.store(true, Release);
        control.log(&global(Global::Slide, slide));
        true
    }

    /// Locks the control ring, in a callback for `vcpu`. It first closes the vCPU's segment, because
    /// writing may wait.
    pub fn control(&self, vcpu: &mut Vcpu) -> MutexGuard<'_, Control> {
        vcpu.writer.close();
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the control ring in a translation callback, which does not name its vCPU.
    pub fn control_in_translation(&self) -> MutexGuard<'_, Control> {
        if let Some(cell) = self.vcpus.get(MINE.get() as usize) {
            // SAFETY: this thread runs that vCPU, and translation happens outside other callbacks.
            unsafe { cell.get() }.writer.close();
        }
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the vCPU that runs, at the beginning of a block or in a kernel function.
    ///
    /// Where vCPUs share a thread, QEMU passes the index of the vCPU that *translated* the code. So this
    /// method finds the vCPU by itself. It also closes the segment that the previous vCPU left open. The
    /// block of that vCPU has ended, and it may not run again before another vCPU waits.
    ///
    /// # Safety
    /// As for [`VcpuCell::get`].
    #[inline]
    pub unsafe fn running(&self, index: u32) -> Option<&'static mut Vcpu> {
        let index = if self.single.load(Relaxed) { self.look() } else { index };
        // SAFETY: passed on to the caller.
        unsafe { self.cell(index) }
    }

    /// Like [`running`](Self::running), where translated code passes the address of its vCPU's
    /// registers.
    ///
    /// # Safety
    /// As for [`VcpuCell::get`].
    #[inline]
    pub unsafe fn running_at(&self, index: u32, env: *mut u64) -> Option<&'static mut Vcpu> {
        if self.single.load(Relaxed) {
            let current = self.current.load(Relaxed);
            // SAFETY: only this thread runs vCPUs.
            if unsafe { self.cell(current) }.is_some_and(|vcpu| vcpu.regs.is_at(env) == Some(true)) {
                // SAFETY: passed on to the caller.
                return unsafe { self.cell(current) };
            }
        }
        // SAFETY: passed on to the caller.
        let vcpu = unsafe { self.running(index) }?;
        vcpu.regs.learn(env);
        Some(vcpu)
    }

    /// Returns the vCPU that runs, inside the block that [`running`](Self::running) was called for.
    ///
    /// # Safety
    /// As for [`VcpuCell::get`].
    #[inline]
    pub unsafe fn same(&self, index: u32) -> Option<&'static mut Vcpu> {
        let index = if self.single.load(Relaxed) { self.current.load(Relaxed) } else { index };
        // SAFETY: passed on to the caller.
        unsafe { self.cell(index) }
    }

    /// Returns the vCPU of a callback outside translated code, where QEMU passes the right index.
    ///
    /// # Safety
    /// As for [`VcpuCell::get`].
    pub unsafe fn named(&self, index: u32) -> Option<&'static mut Vcpu> {
        if self.single.load(Relaxed) {
            self.switch(index);
        }
        // SAFETY: passed on to the caller.
        unsafe { self.cell(index) }
    }

    /// Returns the vCPU with this index.
    ///
    /// # Safety
    /// As for [`VcpuCell::get`].
    #[inline]
    unsafe fn cell(&self, index: u32) -> Option<&'static mut Vcpu> {
        // SAFETY: passed on to the caller; the tracer itself lives as long as the process.
        tracer()?.vcpus.get(index as usize).map(|cell| unsafe { cell.get() })
    }

    /// Whether vCPUs share one thread.
    pub fn single(&self) -> bool {
        self.single.load(Relaxed)
    }

    /// Finds the vCPU that runs on the shared thread, by its GS base. In the kernel each vCPU has a GS
    /// base of its own.
    fn look(&self) -> u32 {
        let current = self.current.load(Relaxed);
        // SAFETY: only this thread runs vCPUs.
        let Some(vcpu) = (unsafe { self.cell(current) }) else { return current };
        // The current vCPU is not known yet, so cached registers may be another's. QEMU must supply the
        // value.
        let gs_base = vcpu.regs.ask(GS_BASE);
        let known = |cell: &AtomicU64| cell.load(Relaxed) == gs_base;
        let found = self.gs_bases.iter().position(known).or_else(|| {
            // The only vCPU whose GS base is still unknown.
            let mut unseen = (0..self.gs_bases.len()).filter(|&i| self.gs_bases[i].load(Relaxed) == 0);
            let one = unseen.next().filter(|_| unseen.next().is_none())?;
            self.gs_bases[one].store(gs_base, Relaxed);
            Some(one)
        });
        match found {
            Some(index) => {
                self.switch(index as u32);
                index as u32
            }
            None => {
                if self.log.failed().is_none() {
                    self.give_up("cannot tell which vCPU runs; use -accel tcg,thread=multi or one vCPU");
                }
                current
            }
        }
    }

    /// Learns a vCPU's GS base from an interrupt of kernel code at `from`. A later value replaces an
    /// earlier one, because the kernel moves the GS base while it boots.
    pub fn learn(&self, index: u32, from: u64) {
        if !self.single.load(Relaxed) {
            return;
        }
        let Some(known) = self.gs_bases.get(index as usize) else { return };
        if self.slide().is_none() || !self.in_kernel_text(from) {
            return;
        }
        // SAFETY: the callback for this vCPU.
        let gs_base = unsafe { self.cell(index) }.map_or(0, |vcpu| vcpu.reg(GS_BASE));
        // On its first instructions after user mode, the kernel still has the user's GS base.
        if gs_base >= 0xffff_8000_0000_0000 {
            known.store(gs_base, Relaxed);
        }
    }

    /// Whether the address belongs to the kernel image's text.
    pub fn in_kernel_text(&self, addr: u64) -> bool {
        let (from, to) = self.config.kernel_text;
        (from..to).contains(&self.link(addr))
    }

    #[inline]
    fn switch(&self, index: u32) {
        if self.current.load(Relaxed) != index {
            let before = self.current.swap(index, Relaxed);
            // SAFETY: this thread is the only one that runs vCPUs, and it runs `index` now.
            if let Some(vcpu) = unsafe { self.cell(before) } {
                vcpu.writer.close();
            }
            MINE.set(index);
        }
    }

    /// Attaches a vCPU. QEMU calls this once for each, on the thread that runs it.
    pub fn attach(&self, index: u32) {
        if MINE.get() != NONE && MINE.get() != index {
            self.single.store(true, Relaxed);
        }
        MINE.set(index);
        self.current.store(index, Relaxed);
        let Some(cell) = self.vcpus.get(index as usize) else {
            return self.give_up(&format!("QEMU has started vCPU {index}, for which the log has no ring"));
        };
        // SAFETY: the callback for this vCPU.
        if let Err(name) = unsafe { cell.get() }.regs.find() {
            self.give_up(&format!(
                "QEMU does not offer the register {name}; use qemu-system-x86_64 11 or newer"
            ));
        }
    }

    /// Prints why, and marks the log as failed. The trace is incomplete from here on, and the run ends
    /// with an error.
    pub fn give_up(&self, why: &str) {
        eprintln!("guardrail tracer: {why}");
        self.log.fail(FailReason::Tracer);
    }

    /// The log that this tracer writes.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The coherent memory of devices, where vCPUs go on after writes to them.
    pub fn coherent(&self) -> Option<&Coherent> {
        Some(&self.gate.as_ref()?.posted.as_ref()?.coherent)
    }

    /// Whether vCPUs go on after writes to devices.
    pub fn posts(&self) -> bool {
        self.coherent().is_some()
    }

    /// Counts an access that reached a device although the gate should have held it.
    #[cold]
    pub fn got_around(&self) {
        let Some(gate) = &self.gate else { return };
        self.log.count_ungated(Space::Memory);
        if gate.config().strict {
            self.close_gate(Closed::Ungated);
        }
    }

    /// Closes the gate, and prints why.
    pub fn close_gate(&self, why: Closed) {
        eprintln!("guardrail tracer: the gate is closed: {why}");
        self.log.close_gate(why);
    }

    /// Whether an access to this address may go to a device.
    #[inline]
    pub fn may_be_device(&self, addr: u64) -> bool {
        let (from, to) = (self.devices_from.load(Relaxed), self.devices_to.load(Relaxed));
        // Fixed mappings lie in the last pages.
        (addr >= from && addr < to) || addr >= 0xffff_ffff_ff00_0000
    }

    /// Notes that driver code at `pc` with this rsp was interrupted.
    pub fn note_interrupted(&self, pc: u64, rsp: u64, exception: bool) {
        let mut map = self.interrupted.lock().unwrap_or_else(PoisonError::into_inner);
        map.insert(rsp, Interrupted { pc, exception });
        self.interrupted_count.store(map.len(), Relaxed);
    }

    /// Whether driver code that begins at `pc` with this rsp continues after an interruption. It forgets
    /// the interruption.
    pub fn take_interrupted(&self, pc: u64, rsp: u64) -> bool {
        if self.interrupted_count.load(Relaxed) == 0 {
            return false;
        }
        let mut map = self.interrupted.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = map.get(&rsp).is_some_and(|i| i.pc == pc || i.exception);
        if goes_on {
            map.remove(&rsp);
            self.interrupted_count.store(map.len(), Relaxed);
        }
        goes_on
    }

    /// Ends all rings. The caller makes sure that no vCPU runs anymore.
    pub fn finish(&self) {
        for cell in &self.vcpus {
            // SAFETY: QEMU stops its vCPUs before it leaves.
            let vcpu = unsafe { cell.get() };
            vcpu.writer.begin();
            vcpu.writer.push(Head::encode(Kind::End, 0, 0));
            vcpu.writer.finish();
        }
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        for meet in self.holds.totals() {
            control.log(&meet.encode());
        }
        control.finish();
    }

    /// Number of registers that may hold arguments of the function at this address.
    pub fn arguments(&self, addr: u64) -> u8 {
        self.arguments.get(&self.link(addr)).copied().unwrap_or(MAX_ARGS as u8)
    }

    fn link(&self, addr: u64) -> u64 {
        addr.wrapping_sub(self.slide.load(Relaxed))
    }
}

impl Addresses for Tracer {
    fn watched(&self, addr: u64) -> bool {
        self.watched.contains(addr)
    }

    fn indirect_thunk(&self, addr: u64) -> Option<u8> {
        self.indirect_thunks.get(&self.link(addr)).copied()
    }

    fn return_thunk(&self, addr: u64) -> bool {
        self.return_thunks.contains(&self.link(addr))
    }
}

/// Makes the record of a value of the running kernel.
pub fn global(what: Global, value: u64) -> [u64; 2] {
    [Head::encode(Kind::Global, what as u8, 0), value]
}
