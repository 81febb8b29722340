//! Structures of the slab allocator (SLUB) and of pages.

use guardrail_binfmt::KernelError;
use guardrail_binfmt::KernelImage;

/// `SLAB_TYPESAFE_BY_RCU`, where the kernel's types do not name its bit (up to 6.8; include/linux/slab.h).
const TYPESAFE_BY_RCU: u64 = 0x0008_0000;

/// Offsets in bytes, and link-time addresses of variables.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Layout {
    /// Offset of `kmem_cache::flags`; the fields that follow are offsets in `struct kmem_cache` as well.
    pub cache_flags: u64,
    pub cache_size: u64,
    pub cache_object_size: u64,
    /// Offset in `struct kmem_cache` of the word with the offset of the next pointer in a free object.
    pub cache_offset: u64,
    /// Offset of the word that such pointers are mixed with; `None` where they are plain.
    pub cache_random: Option<u64>,
    pub cache_name: u64,
    pub cache_red_left_pad: Option<u64>,
    /// Offsets in `struct slab`, which overlays `struct page`.
    pub slab_cache: u64,
    pub slab_freelist: u64,
    /// Offset of 16 bits, the highest of which is not part of the number.
    pub slab_objects: u64,
    /// Size of `struct page`, and offsets in it.
    pub page_size: u64,
    pub page_flags: u64,
    pub page_type: u64,
    pub page_refcount: u64,
    /// How to recognize a page of the slab allocator.
    pub slab_mark: SlabMark,
    /// Free objects that CPUs keep for themselves: up to 6.17, and since.
    pub cpu_slabs: Option<CpuSlabs>,
    pub sheaves: Option<Sheaves>,
    /// The bit of `kmem_cache::flags` that keeps freed objects readable for a grace period.
    pub typesafe_by_rcu: u64,
    /// Where the allocator keeps its own words inside of slabs (since 7.0). First the bit of
    /// `kmem_cache::flags` that puts them at the end of each slot. Then how many bytes there, and the pointer
    /// in `struct slab` that may lead behind the last slot.
    pub own_words: Option<(u64, u64, u64)>,
    /// Link-time addresses of variables.
    pub max_pfn: u64,
    pub page_offset_base: u64,
    pub vmemmap_base: u64,
    pub per_cpu_offset: u64,
    pub nr_cpu_ids: u64,
    /// Offsets in `struct vm_struct`, then of where a `struct vmap_area` begins and ends.
    pub vm_addr: u64,
    pub vm_size: u64,
    pub va_start: u64,
    pub va_end: u64,
    /// Offsets in `struct folio_batch`: the number of folios, and the first.
    pub folio_batch: Option<(u64, u64)>,
    /// Offset of `struct page::lru`.
    pub page_lru: u64,
}

/// How a `struct page` shows that it is the first of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlabMark {
    /// By a bit of its flags.
    Flag(u32),
    /// By the upper byte of its type.
    Type(u8),
}

/// A slab for each CPU: `kmem_cache::cpu_slab` (a per-CPU pointer), and in what it points to the list and the
/// slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct CpuSlabs {
    pub cache: u64,
    pub freelist: u64,
    pub slab: u64,
}

/// Arrays of free objects for each CPU: `kmem_cache::cpu_sheaves` (a per-CPU pointer), in what it points to
/// the arrays, and in those how many objects and the first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Sheaves {
    pub cache: u64,
    pub sheaves: Vec<u64>,
    pub count: u64,
    pub objects: u64,
    /// Full sheaves of a node: `kmem_cache::per_node[0].barn`, the list's head in it, and the list in a
    /// sheaf.
    pub barn: Option<(u64, u64, u64)>,
}

impl Layout {
    /// Reads the layout of a kernel. An error names all that the kernel lacks.
    pub fn of(image: &KernelImage) -> Result<Layout, KernelError> {
        let mut get = Lookup { image, missing: Vec::new() };
        let btf = image.btf();
        let optional = |structure: &str, path: &str| btf.member_offset(structure, path);
        let slab_mark = match btf.enum_value_in("pagetype", "PGTY_slab").map(u8::try_from) {
            Some(Ok(kind)) => Some(SlabMark::Type(kind)),
            _ => btf.enum_value_in("pageflags", "PG_slab").map(|bit| SlabMark::Flag(bit as u32 & 63)),
        };
        if slab_mark.is_none() {
            get.missing.push("PG_slab".to_owned());
        }
        let cpu_slabs = optional("kmem_cache", "cpu_slab").and_then(|cache| {
            Some(CpuSlabs {
                cache,
                freelist: optional("kmem_cache_cpu", "freelist")?,
                slab: optional("kmem_cache_cpu", "slab")?,
            })
        });
        let sheaves = optional("kmem_cache", "cpu_sheaves").and_then(|cache| {
            Some(Sheaves {
                cache,
                sheaves: ["main", "spare"]
                    .iter()
                    .filter_map(|name| optional("slub_percpu_sheaves", name))
                    .collect(),
                count: optional("slab_sheaf", "size")?,
                objects: optional("slab_sheaf", "objects")?,
                barn: optional("kmem_cache", "per_node[0].barn")
                    .zip(optional("node_barn", "sheaves_full"))
                    .zip(optional("slab_sheaf", "barn_list"))
                    .map(|((barn, full), list)| (barn, full, list)),
            })
        });
        if cpu_slabs.is_none() && sheaves.is_none() {
            get.missing.push("struct kmem_cache.cpu_slab".to_owned());
        }
        let typesafe_by_rcu = btf
            .enum_value_in("_slab_flag_bits", "_SLAB_TYPESAFE_BY_RCU")
            .map_or(TYPESAFE_BY_RCU, |bit| 1 << (bit & 63));
        let layout = Layout {
            cache_flags: get.member("kmem_cache", "flags"),
            cache_size: get.member("kmem_cache", "size"),
            cache_object_size: get.member("kmem_cache", "object_size"),
            cache_offset: get.member("kmem_cache", "offset"),
            cache_random: optional("kmem_cache", "random"),
            cache_name: get.member("kmem_cache", "name"),
            cache_red_left_pad: optional("kmem_cache", "red_left_pad"),
            slab_cache: get.member("slab", "slab_cache"),
            slab_freelist: get.member("slab", "freelist"),
            slab_objects: get.member("slab", "objects"),
            page_size: btf.struct_named("page").and_then(|id| btf.size_of(id)).unwrap_or(64),
            page_flags: get.member("page", "flags"),
            page_type: get.member("page", "page_type"),
            page_refcount: get.member("page", "_refcount"),
            slab_mark: slab_mark.unwrap_or(SlabMark::Flag(0)),
            cpu_slabs,
            sheaves,
            typesafe_by_rcu,
            own_words: (|| {
                let bit = btf.enum_value_in("_slab_flag_bits", "_SLAB_OBJ_EXT_IN_OBJ")?;
                let size = btf.size_of(btf.struct_named("slabobj_ext")?)?;
                Some((1 << (bit & 63), size, optional("slab", "obj_exts")?))
            })(),
            max_pfn: get.variable("max_pfn"),
            page_offset_base: get.variable("page_offset_base"),
            vmemmap_base: get.variable("vmemmap_base"),
            per_cpu_offset: get.variable("__per_cpu_offset"),
            nr_cpu_ids: get.variable("nr_cpu_ids"),
            vm_addr: get.member("vm_struct", "addr"),
            vm_size: get.member("vm_struct", "size"),
            va_start: get.member("vmap_area", "va_start"),
            va_end: get.member("vmap_area", "va_end"),
            folio_batch: optional("folio_batch", "nr").zip(optional("folio_batch", "folios")),
            page_lru: get.member("page", "lru"),
        };
        match get.missing.is_empty() {
            true => Ok(layout),
            false => Err(KernelError::Missing {
                release: image.release().to_owned(),
                missing: get.missing.join(", "),
            }),
        }
    }
}

struct Lookup<'a> {
    image: &'a KernelImage,
    missing: Vec<String>,
}

impl Lookup<'_> {
    fn member(&mut self, structure: &str, path: &str) -> u64 {
        self.image.btf().member_offset(structure, path).unwrap_or_else(|| {
            self.missing.push(format!("struct {structure}.{path}"));
            0
        })
    }

    fn variable(&mut self, name: &str) -> u64 {
        self.image.address_of(name).unwrap_or_else(|| {
            self.missing.push(name.to_owned());
            0
        })
    }
}
