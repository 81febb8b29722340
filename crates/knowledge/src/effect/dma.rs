//! Effects on DMA mappings and DMA memory.

use super::{Len, Ptr};

/// How a streaming mapping was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MapKind {
    /// By `dma_map_single` or `dma_map_page`: one function since 4.10, so not distinguished.
    Single,
    /// By `dma_map_sg`.
    List,
    /// By `dma_map_resource`.
    Resource,
}

/// What a call does to DMA mappings and DMA memory. Numbers are arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DmaOp {
    /// Lends memory to a device; the result is the bus address, or all ones.
    Map {
        /// The `struct device`.
        dev: u8,
        /// The first byte of the memory.
        ptr: Ptr,
        /// The memory's physical address, where a call has that instead (`dma_map_phys`).
        physical: Option<u8>,
        /// How many bytes it lends.
        len: Len,
        /// The direction of the mapping.
        dir: u8,
        /// How the mapping is made.
        kind: MapKind,
    },
    /// Takes the memory of a mapping back.
    Unmap {
        /// The `struct device`.
        dev: u8,
        /// The bus address.
        addr: u8,
        /// How many bytes the mapping has.
        len: Len,
        /// The direction of the mapping.
        dir: u8,
        /// How the mapping was made.
        kind: MapKind,
    },
    /// Lends the segments of a list; the result is how many bus segments there are.
    MapList {
        /// The `struct device`.
        dev: u8,
        /// The scatterlist, or its table.
        list: u8,
        /// How many segments, where an argument holds it; a `struct sg_table` otherwise.
        count: Option<u8>,
        /// The direction of the mapping.
        dir: u8,
    },
    /// Takes the segments of a list back.
    UnmapList {
        /// The `struct device`.
        dev: u8,
        /// The scatterlist, or its table.
        list: u8,
        /// How many segments, where an argument holds it.
        count: Option<u8>,
        /// The direction of the mapping.
        dir: u8,
    },
    /// Passes a part of a mapping to the CPU, or back to the device, for a while.
    SyncSingle {
        /// The `struct device`.
        dev: u8,
        /// The bus address of the mapping.
        addr: u8,
        /// An offset to add to it, where the call has one.
        offset: Option<u8>,
        /// How many bytes the part has.
        len: Len,
        /// The direction of the mapping.
        dir: u8,
        /// Whether the CPU gets the part.
        for_cpu: bool,
    },
    /// Passes a list to the CPU, or back to the device, for a while.
    SyncList {
        /// The `struct device`.
        dev: u8,
        /// The scatterlist.
        list: u8,
        /// How many segments the list has.
        count: u8,
        /// The direction of the mapping.
        dir: u8,
        /// Whether the CPU gets the list.
        for_cpu: bool,
    },
    /// The result is coherent memory; the call stores its bus address through an argument.
    AllocCoherent {
        /// The `struct device`.
        dev: u8,
        /// How many bytes it allocates.
        size: u8,
        /// Where the call stores the bus address.
        handle: u8,
    },
    /// Coherent memory is freed.
    FreeCoherent {
        /// The `struct device`.
        dev: u8,
        /// How many bytes it frees.
        size: u8,
        /// The address of the memory.
        cpu: u8,
        /// Its bus address.
        handle: u8,
    },
    /// The result is a pool.
    CreatePool {
        /// The `struct device`.
        dev: u8,
        /// Bytes of a block.
        size: u8,
    },
    /// A pool is freed.
    DestroyPool {
        /// The `struct dma_pool`.
        pool: u8,
    },
    /// The result is a block of a pool.
    PoolAlloc {
        /// The `struct dma_pool`.
        pool: u8,
        /// Where the call stores the bus address.
        handle: u8,
    },
    /// A block of a pool is freed.
    PoolFree {
        /// The `struct dma_pool`.
        pool: u8,
        /// The address of the block.
        cpu: u8,
        /// Its bus address.
        handle: u8,
    },
    /// The call makes or maps memory of the device in a way that is not followed further.
    Other {
        /// The `struct device`.
        dev: u8,
    },
    /// The result is where device registers are mapped.
    MapIo,
    /// Device registers are unmapped.
    UnmapIo {
        /// Where they are mapped.
        addr: u8,
    },
    /// A driver has left its device: it must have released all when the call returns.
    Unbind {
        /// The `struct device`.
        dev: u8,
    },
    /// Asks whether an address is in vmalloc space, as `dma_map_single` does for every buffer.
    AskVmalloc {
        /// The address in question.
        addr: u8,
    },
    /// Names the driver of a device, as the warning does with which `dma_map_single` refuses a buffer.
    NameDriver,
    /// The result shows whether the mappings of a device need to be unmapped.
    NeedUnmap {
        /// The `struct device`.
        dev: u8,
    },
}
