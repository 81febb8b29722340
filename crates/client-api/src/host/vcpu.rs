//! A client's view of the vCPU in a callback.

use super::host;
use guardrail_plugin::cpu::{ARGS, Cpu};
use guardrail_plugin::ffi;
use guardrail_plugin::registers::{Flags, GS_BASE, RSP};

/// The vCPU of a callback.
pub struct Vcpu {
    index: u32,
    cpu: Cpu,
    /// The program counter that the client has set, with which the callback must leave.
    pub(crate) jump: Option<u64>,
    /// True between the report that an exception was raised and the report of its handler.
    pub(crate) raised: bool,
}

impl Vcpu {
    pub(crate) fn new(index: u32) -> Vcpu {
        Vcpu { index, cpu: Cpu::new(), jump: None, raised: false }
    }

    /// Index of the vCPU, from 0.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Reads a register, by its number in [`register`](crate::register) (general registers have their
    /// hardware numbers).
    ///
    /// All values are current at function entries and returns, and in
    /// [`executed`](crate::Client::executed) for a block. In [`accessed`](crate::Client::accessed) they
    /// date from before the access, and are 0 until the client has seen some blocks.
    #[inline]
    pub fn register(&mut self, number: usize) -> u64 {
        self.cpu.reg(number)
    }

    /// The first six integer arguments, at a function's entry.
    pub fn args(&mut self) -> [u64; 6] {
        ARGS.map(|register| self.cpu.reg(register))
    }

    /// Return address of the current function, at its entry or its return.
    pub fn caller(&mut self) -> Option<u64> {
        let stack = self.stack();
        self.word(stack, 8)
    }

    /// The stack pointer.
    #[inline]
    pub fn stack(&mut self) -> u64 {
        self.cpu.reg(RSP)
    }

    /// Reads up to eight bytes of guest memory at a virtual address, zero-extended. `None` where nothing
    /// is mapped.
    pub fn word(&mut self, addr: u64, len: usize) -> Option<u64> {
        let host = host()?;
        if let Some(physical) = host.direct_physical(addr)
            && let Some(word) = host.ram.word(physical, len)
        {
            return Some(word);
        }
        self.cpu.read_word(addr, len)
    }

    /// Translates a virtual address to a physical one. `None` where it is not mapped.
    pub fn translate(&mut self, addr: u64) -> Option<u64> {
        self.cpu.translate(addr)
    }

    /// Reads up to eight bytes at a physical address, zero-extended.
    pub fn physical_word(&mut self, physical: u64, len: usize) -> Option<u64> {
        host()?.ram.word(physical, len).or_else(|| self.cpu.read_physical_word(physical, len))
    }

    /// Reads guest memory at a virtual address. `None` where any of it is not mapped.
    pub fn read(&mut self, addr: u64, len: usize) -> Option<&[u8]> {
        self.cpu.read(addr, len)
    }

    /// Address of a per-CPU variable of this vCPU, from its link-time address or offset. The `kernel`
    /// crate says which it is: BTF and symbols based at zero give offsets.
    pub fn per_cpu(&mut self, offset: u64) -> u64 {
        self.cpu.reg(GS_BASE).wrapping_add(offset)
    }

    /// The KASLR slide of the kernel; `None` before it is known.
    pub fn slide(&self) -> Option<u64> {
        host()?.slide()
    }

    /// Like [`per_cpu`](Self::per_cpu), for a symbol in the image (since 6.15). There the GS base is the
    /// distance to the vCPU's copy.
    pub fn per_cpu_symbol(&mut self, link: u64) -> Option<u64> {
        let slide = host()?.slide()?;
        Some(self.per_cpu(link.wrapping_add(slide)))
    }

    /// Guest virtual address of the running task's `task_struct`.
    pub fn task(&mut self) -> Option<u64> {
        let offset = host()?.per_cpu_offset(|places| places.current)?;
        let at = self.per_cpu(offset);
        self.word(at, 8)
    }

    /// `preempt_count`, whose bits count nested softirq, hardirq and NMI levels
    /// (include/linux/preempt.h).
    pub fn preempt_count(&mut self) -> Option<u32> {
        let offset = host()?.per_cpu_offset(|places| places.preempt_count)?;
        let at = self.per_cpu(offset);
        self.word(at, 4).map(|count| count as u32)
    }

    /// Name and pid of a task, as `name/pid`.
    pub fn task_name(&mut self, task: u64) -> Option<String> {
        let layout = &host()?.config.kernel.task;
        let pid = self.word(task.wrapping_add(layout.pid), 4)?;
        let comm = self.read(task.wrapping_add(layout.comm), 16)?;
        let len = comm.iter().position(|&byte| byte == 0).unwrap_or(comm.len());
        Some(format!("{}/{pid}", String::from_utf8_lossy(&comm[..len])))
    }

    /// Sets a general register, for [`jump`](Self::jump).
    pub fn set_register(&mut self, number: usize, value: u64) {
        self.cpu.set_reg(number, value);
    }

    /// Makes the vCPU continue at `pc` after this callback. Only in
    /// [`executed`](crate::Client::executed), for a block registered with
    /// [`Block::may_jump`](crate::Block::may_jump).
    pub fn jump(&mut self, pc: u64) {
        self.jump = Some(pc);
    }

    /// Like [`jump`](Self::jump), from an instruction inside a block
    /// ([`Block::may_jump_at`](crate::Block::may_jump_at)). The arithmetic flags are lost.
    ///
    /// Returns false and does nothing where QEMU's record of the flags cannot be settled. That is so
    /// until RFLAGS was read some hundred times.
    pub fn jump_from_inside(&mut self, pc: u64) -> bool {
        let can = self.cpu.regs.can_leave(Flags::Dead);
        if can {
            self.jump = Some(pc);
        }
        can
    }

    pub(crate) fn cpu(&mut self) -> &mut Cpu {
        &mut self.cpu
    }
}

/// A memory access that an instruction has made.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Guest virtual address of its first byte.
    pub address: u64,
    pub(crate) info: u32,
}

impl Access {
    /// Length in bytes: 1 to 64.
    #[inline]
    pub fn size(&self) -> u64 {
        // SAFETY: a plain function of the value that QEMU passed.
        1 << unsafe { ffi::qemu_plugin_mem_size_shift(self.info) }
    }

    /// Whether it is a store.
    #[inline]
    pub fn is_store(&self) -> bool {
        // SAFETY: as above.
        unsafe { ffi::qemu_plugin_mem_is_store(self.info) }
    }

    /// The low eight bytes of the value read or written. Only inside the callback.
    pub fn value(&self) -> u64 {
        // SAFETY: called in the access's callback.
        unsafe { ffi::qemu_plugin_mem_get_value(self.info) }.low
    }

    /// Whether it accessed a device's registers. Only inside the callback.
    pub fn is_io(&self) -> bool {
        // SAFETY: called in the access's callback; the result is valid until the callback ends.
        unsafe {
            let place = ffi::qemu_plugin_get_hwaddr(self.info, self.address);
            !place.is_null() && ffi::qemu_plugin_hwaddr_is_io(place)
        }
    }
}

/// One value for each vCPU, on cache lines of its own. The running vCPU's callback uses its value
/// without a lock. Other threads may read all values at the same time, so the values consist of atomics
/// or the like.
pub struct PerVcpu<T>(Box<[Padded<T>]>);

#[repr(align(128))]
struct Padded<T>(T);

impl<T: Sync> PerVcpu<T> {
    pub(crate) fn new(count: u32, make: impl FnMut() -> T) -> PerVcpu<T> {
        PerVcpu(std::iter::repeat_with(make).take(count as usize).map(Padded).collect())
    }

    /// The value of the current vCPU.
    #[inline]
    pub fn of(&self, vcpu: &Vcpu) -> &T {
        &self.0[vcpu.index as usize].0
    }

    /// The values of all vCPUs, in the order of their indexes.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|padded| &padded.0)
    }
}
