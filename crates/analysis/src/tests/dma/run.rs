//! A guest whose driver maps memory for devices.

pub use crate::tests::guest::*;
use guardrail_knowledge::effect::{Class, DmaOp, Effect, Key, Len, MapKind, Ptr, SyncOp, When, Zeroed};

pub const DEV: u64 = HEAP + 0x80_0000;
pub const OTHER: u64 = HEAP + 0x90_0000;
const PAGES: u64 = 0xffff_ea00_0000_0000;
pub const DIRECT: u64 = 0xffff_8880_0000_0000;
pub const BOTH: u64 = 0;
pub const TO: u64 = 1;
pub const FROM: u64 = 2;
/// The bus address where the device sees the direct map.
pub const BUS: u64 = 0x10_0000_0000;
/// Offset of the flag in `struct device`, where the test's kernel has it.
pub const SKIP: u64 = 0x2f4;
pub const MAP: &str = "dma_map_page_attrs";
pub const UNMAP: &str = "dma_unmap_page_attrs";
const MAP_SG: &str = "dma_map_sg_attrs";
const UNMAP_SG: &str = "dma_unmap_sg_attrs";
pub const SYNC_CPU: &str = "dma_sync_single_for_cpu";
pub const SYNC_DEVICE: &str = "dma_sync_single_for_device";

/// cmp rax, -1; je +0
pub const CHECK: &[u8] = &[0x48, 0x83, 0xf8, 0xff, 0x74, 0x00];
/// movzx eax, byte [rdi]
pub const READ1: &[u8] = &[0x0f, 0xb6, 0x07];

/// A kernel with functions that map memory for devices.
pub fn kernel() -> Kernel {
    let (dev, kind) = (0, MapKind::Single);
    let dma = |op| [Effect::Dma(op)];
    let zeroed = |class, size| alloc(class, size, Zeroed::Yes);
    let sync =
        |for_cpu| dma(DmaOp::SyncSingle { dev, addr: 1, offset: None, len: Len::Arg(2), dir: 3, for_cpu });
    let (page, phys) = (Ptr::Page(1, Some(2)), Ptr::Arg(1));
    Kernel::new()
        .hook(MAP, dma(DmaOp::Map { dev, ptr: page, physical: None, len: Len::Arg(3), dir: 4, kind }))
        .hook(UNMAP, dma(DmaOp::Unmap { dev, addr: 1, len: Len::Arg(2), dir: 3, kind }))
        .hook(MAP_SG, dma(DmaOp::MapList { dev, list: 1, count: Some(2), dir: 3 }))
        .hook(UNMAP_SG, dma(DmaOp::UnmapList { dev, list: 1, count: Some(2), dir: 3 }))
        .hook(SYNC_CPU, sync(true))
        .hook(SYNC_DEVICE, sync(false))
        .hook(
            "dma_alloc_attrs",
            [zeroed(Class::Dma, Len::Arg(1)), Effect::Dma(DmaOp::AllocCoherent { dev, size: 1, handle: 2 })],
        )
        .hook(
            "dma_free_attrs",
            [free(2, Class::Dma), Effect::Dma(DmaOp::FreeCoherent { dev, size: 1, cpu: 2, handle: 3 })],
        )
        .hook("dma_pool_create", dma(DmaOp::CreatePool { dev: 1, size: 2 }))
        .hook("dma_pool_destroy", dma(DmaOp::DestroyPool { pool: 0 }))
        .hook(
            "dma_pool_alloc",
            [zeroed(Class::Dma, Len::Const(64)), Effect::Dma(DmaOp::PoolAlloc { pool: 0, handle: 2 })],
        )
        .hook(
            "dma_pool_free",
            [free(1, Class::Dma), Effect::Dma(DmaOp::PoolFree { pool: 0, cpu: 1, handle: 2 })],
        )
        .hook("ioremap", dma(DmaOp::MapIo))
        .hook("iounmap", dma(DmaOp::UnmapIo { addr: 0 }))
        .hook("devres_release_all", dma(DmaOp::Unbind { dev }))
        .hook("dma_need_unmap", dma(DmaOp::NeedUnmap { dev }))
        .hook("kmalloc", [alloc(Class::Slab, Len::Arg(0), Zeroed::Gfp(1))])
        .hook("kfree", [free(0, Class::Slab)])
        .hook(
            "dma_map_phys",
            dma(DmaOp::Map { dev, ptr: phys, physical: Some(1), len: Len::Arg(2), dir: 3, kind }),
        )
        .hook("alloc_page", [zeroed(Class::Page, Len::Const(4096))])
        .hook("free_page", [free(0, Class::Page)])
        .function(
            "active_await",
            [Effect::Sync(SyncOp::Acquire { key: Key::Global("message"), when: When::Always })],
        )
        .function("is_vmalloc_addr", dma(DmaOp::AskVmalloc { addr: 0 }))
        .function("dev_driver_string", dma(DmaOp::NameDriver))
        .function("iowrite32", [Effect::Sync(SyncOp::Release { key: Key::Global("device"), word: false })])
        .function("memcpy", [Effect::Copy { dst: Ptr::Arg(0), src: Ptr::Arg(1), len: Len::Arg(2) }])
}

/// The guest, and the address of the next call or block of `f`.
pub struct Run {
    pub g: Guest,
    pub at: u64,
}

impl Run {
    pub fn new() -> Run {
        Run::with(&["dmacheck"])
    }

    pub fn with(tools: &[&str]) -> Run {
        Run::on(kernel(), tools)
    }

    /// A run on a kernel that leaves synchronizations out where the device's flag allows it.
    pub fn skipping() -> Run {
        Run::on(kernel().dma_skip_sync(SKIP), &["dmacheck"])
    }

    fn on(kernel: Kernel, tools: &[&str]) -> Run {
        let mut g = Guest::with(kernel, tools);
        g.enter();
        Run { g, at: F }
    }

    /// The driver calls a hooked function; a block follows.
    pub fn call(&mut self, name: &str, args: &[u64], result: u64) -> &mut Run {
        self.g.hooked(self.at, name, args, result);
        self.at += 5;
        self.block(&[0x90])
    }

    /// Like [`Self::call`], of a function that is not hooked.
    pub fn called(&mut self, name: &str, args: &[u64]) -> &mut Run {
        self.g.called(self.at, name, args);
        self.at += 5;
        self.block(&[0x90])
    }

    /// The driver calls a hooked function, which begins. Returns the value of rsp there.
    pub fn begin(&mut self, name: &str, args: &[u64]) -> u64 {
        self.g.call(self.at, name, args);
        self.at += 5;
        self.g.hook(name, self.g.rsp, self.at, args);
        self.g.rsp
    }

    pub fn block(&mut self, bytes: &[u8]) -> &mut Run {
        self.g.block(self.at, bytes);
        self.at += bytes.len() as u64;
        self
    }

    pub fn read(&mut self, at: u64) -> &mut Run {
        self.block(READ4).g.load(0, at, 4);
        self
    }

    pub fn write(&mut self, at: u64) -> &mut Run {
        self.block(WRITE1).g.store(0, at, 1);
        self
    }

    /// Maps memory. Its bus address is `BUS` plus its offset in the direct map.
    pub fn map(&mut self, at: u64, size: u64, dir: u64) -> &mut Run {
        self.call(MAP, &[DEV, page(at), at & 4095, size, dir], bus(at)).block(CHECK)
    }

    pub fn unmap(&mut self, at: u64, size: u64, dir: u64) -> &mut Run {
        self.call(UNMAP, &[DEV, bus(at), size, dir], 0)
    }

    pub fn sync(&mut self, name: &str, at: u64, size: u64, dir: u64) -> &mut Run {
        self.call(name, &[DEV, bus(at), size, dir], 0)
    }

    pub fn map_list(&mut self, list: u64, entries: &[(u64, u64)], dir: u64) -> &mut Run {
        let count = entries.len() as u64;
        let rsp = self.begin(MAP_SG, &[DEV, list, count, dir]);
        self.g.hook_return(MAP_SG, rsp, count);
        self.g.list(MAP_SG, rsp, &words(entries));
        self.g.back(count);
        self.block(&[0x90])
    }

    pub fn unmap_list(&mut self, list: u64, count: u64, entries: &[(u64, u64)], dir: u64) -> &mut Run {
        let rsp = self.begin(UNMAP_SG, &[DEV, list, count, dir]);
        self.g.list(UNMAP_SG, rsp, &words(entries));
        self.g.hook_return(UNMAP_SG, rsp, 0);
        self.g.back(0);
        self.block(&[0x90])
    }

    /// Ends the run; returns each finding as `kind: message`.
    pub fn found(mut self) -> Vec<String> {
        self.g.unload();
        self.g.finish().findings.iter().map(|f| format!("{}: {}", f.kind, f.message)).collect()
    }
}

pub fn bus(at: u64) -> u64 {
    at - DIRECT + BUS
}

/// The address of the `struct page` of an address.
pub fn page(at: u64) -> u64 {
    PAGES.wrapping_add(at.wrapping_sub(DIRECT) / 4096 * 64)
}

/// The entries of a list, as its hook records them.
fn words(entries: &[(u64, u64)]) -> Vec<u64> {
    let word = |&(at, len): &(u64, u64)| [page(at) + 2, at & 4095, len, bus(at), len];
    entries.iter().flat_map(word).collect()
}

pub const NONE: [&str; 0] = [];
