//! Functions of the allocators, and which code is theirs.

use crate::summaries::{SummaryTable, function, places};
use guardrail_binfmt::KernelImage;
use guardrail_knowledge::effect::{Class, Effect, Len, Ptr};

/// The size of a new object, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// An argument holds the size.
    Arg(u8),
    /// The size is the product of two arguments.
    Product(u8, u8),
    /// The size is that of the cache's objects.
    Cache,
}

/// What a function of an allocator does. Numbers are arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Call {
    /// The result is a new object, of a slab or of whole pages.
    Object(Size),
    /// The argument's object is freed.
    Free(u8),
    /// The object is as large as its slot from now on.
    Grow(u8),
    /// An array holds new objects: as many as the result states, or all that were asked for where it is just
    /// true.
    Bulk { count: u8, objects: u8, all: bool },
    /// The objects of an array are freed; an argument has their number.
    BulkFree { count: u8, objects: u8 },
    /// The objects of a sheaf are freed; the argument is the head that was passed to RCU.
    SheafFree(u8),
    /// The result is a `struct page`, the first of 2^order new pages.
    Pages { order: u8 },
    /// Pages have been taken from the free ones.
    PagesTaken { page: u8, order: u8 },
    /// As many new pages as the result states are in an array, or linked in a list by `lru` where the array
    /// is null.
    PagesBulk { list: Option<u8>, array: u8 },
    /// 2^order pages are freed.
    PagesFree { page: u8, order: u8 },
    /// The pages of a list, linked by `lru`, are freed.
    PagesFreeList(u8),
    /// The pages of a batch are freed.
    PagesFreeBatch(u8),
    /// The result is new memory with page tables of its own.
    Vmalloc { size: Size },
    /// Memory with page tables of its own is freed.
    VmallocFree(u8),
    /// The result is a `struct vmap_area` whose addresses get a new meaning.
    AreaNew,
    /// The result is a `struct vm_struct` whose addresses mean nothing any more.
    AreaGone,
    /// The result is an array of `struct vm_struct` whose addresses get a new meaning; an argument has their
    /// number.
    AreasNew { count: u8 },
    /// The result is an offset into the memory of each CPU.
    PerCpu { size: u8 },
    /// Per-CPU memory is freed.
    PerCpuFree(u8),
    /// KFENCE, not the slab allocator, made the result.
    Kfence,
}

impl Call {
    /// Whether the call takes effect when it begins; otherwise it does when it returns.
    pub fn begins(self) -> bool {
        matches!(
            self,
            Call::Free(_)
                | Call::BulkFree { .. }
                | Call::SheafFree(_)
                | Call::PagesTaken { .. }
                | Call::PagesFree { .. }
                | Call::PagesFreeList(_)
                | Call::PagesFreeBatch(_)
                | Call::VmallocFree(_)
                | Call::PerCpuFree(_)
        )
    }
}

/// A function that this kernel has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its symbol in the image.
    pub name: String,
    /// Its link-time address.
    pub address: u64,
    /// What a call of it does.
    pub call: Call,
    /// Whether its results matter, and not only its arguments.
    pub returns: bool,
}

/// Returns the argument that a name stands for.
type Argument<'a> = &'a dyn Fn(&str) -> u8;

/// Names of functions, of which a kernel has some; their parameters; and what they do.
type Row = (&'static [&'static str], &'static [&'static str], fn(Argument<'_>) -> Call);

/// Functions that the table of summaries has no words for: inner functions, arrays of objects, address space.
const MORE: &[Row] = &[
    (&["get_page_from_freelist"], &["gfp_mask", "order"], |at| Call::Pages { order: at("order") }),
    (&["post_alloc_hook"], &["page", "order"], |at| Call::PagesTaken {
        page: at("page"),
        order: at("order"),
    }),
    (
        &["__alloc_pages_bulk", "alloc_pages_bulk"],
        &["gfp", "preferred_nid", "nodemask", "nr_pages", "page_list", "page_array"],
        |at| Call::PagesBulk { list: Some(at("page_list")), array: at("page_array") },
    ),
    (
        &["__alloc_pages_bulk", "alloc_pages_bulk"],
        &["gfp", "preferred_nid", "nodemask", "nr_pages", "page_array"],
        |at| Call::PagesBulk { list: None, array: at("page_array") },
    ),
    (&["free_unref_page", "__free_frozen_pages", "__free_pages_ok"], &["page", "order"], |at| {
        Call::PagesFree { page: at("page"), order: at("order") }
    }),
    (&["free_unref_page_list"], &["list"], |at| Call::PagesFreeList(at("list"))),
    (&["free_unref_folios"], &["folios"], |at| Call::PagesFreeBatch(at("folios"))),
    (&["kmem_cache_alloc_bulk"], &["s", "flags", "size", "p"], |at| Call::Bulk {
        count: at("size"),
        objects: at("p"),
        all: false,
    }),
    (&["kmem_cache_free_bulk"], &["s", "size", "p"], |at| Call::BulkFree {
        count: at("size"),
        objects: at("p"),
    }),
    (&["kmem_cache_alloc_from_sheaf"], &["s"], |_| Call::Object(Size::Cache)),
    (&["rcu_free_sheaf", "rcu_free_sheaf_nobarn"], &["head"], |at| Call::SheafFree(at("head"))),
    (&["kfree_nolock"], &["object"], |at| Call::Free(at("object"))),
    (&["_kmalloc_nolock"], &["size"], |at| Call::Object(Size::Arg(at("size")))),
    (&["__kmalloc_flags"], &["size"], |at| Call::Object(Size::Arg(at("size")))),
    (&["__vmalloc_node_range"], &["size"], |at| Call::Vmalloc { size: Size::Arg(at("size")) }),
    (&["vfree"], &["addr"], |at| Call::VmallocFree(at("addr"))),
    (&["alloc_vmap_area"], &["size"], |_| Call::AreaNew),
    (&["remove_vm_area"], &["addr"], |_| Call::AreaGone),
    (&["pcpu_get_vm_areas"], &["offsets", "sizes", "nr_vms"], |at| Call::AreasNew { count: at("nr_vms") }),
    (&["pcpu_alloc"], &["size"], |at| Call::PerCpu { size: at("size") }),
    (&["free_percpu"], &["ptr"], |at| Call::PerCpuFree(at("ptr"))),
    (&["__kfence_alloc"], &["s"], |_| Call::Kfence),
];

/// Functions that each source file of the allocators has, in some version. The compiler keeps those of a file
/// together, so what lies between two of them belongs to the file.
const FILES: [&[&str]; 5] = [
    &[
        "allocate_slab",
        "___slab_alloc",
        "__slab_free",
        "kmem_cache_alloc",
        "kmem_cache_alloc_node",
        "kmem_cache_alloc_lru",
        "kmem_cache_alloc_bulk",
        "kmem_cache_free",
        "kmem_cache_free_bulk",
        "__kmem_cache_alloc_node",
        "__kmem_cache_free",
        "__free_slab",
        "rcu_free_slab",
        "discard_slab",
        "deactivate_slab",
        "flush_cpu_slab",
        "flush_cpu_sheaves",
        "slub_cpu_dead",
        "free_to_partial_list",
        "check_object",
        "validate_slab",
        "validate_slab_cache",
        "get_slabinfo",
        "__kmem_cache_shutdown",
        "__kmem_cache_shrink",
        "__kmem_obj_info",
        "__check_heap_object",
        "do_kmem_cache_create",
        "__kmem_cache_create",
        "kfree_nolock",
        "rcu_free_sheaf",
        "refill_objects",
        "object_err",
        "kmem_cache_init",
        "early_kmem_cache_node_alloc",
        "create_boot_cache",
        "bootstrap",
    ],
    &[
        "kfree",
        "kfree_sensitive",
        "krealloc",
        "krealloc_node_align",
        "ksize",
        "__ksize",
        "__kmalloc",
        "__kmalloc_node",
        "__kmalloc_node_track_caller",
        "__kmalloc_cache",
        "__kmalloc_cache_node",
        "kmalloc_trace",
        "kmalloc_node_trace",
        "kmalloc_large",
        "kmalloc_large_node",
        "__kmalloc_large_node",
        "free_large_kmalloc",
        "kmem_cache_create_usercopy",
        "kmem_cache_destroy",
        "kmem_cache_shrink",
        "slab_unmergeable",
        "kmalloc_size_roundup",
    ],
    &[
        "get_page_from_freelist",
        "__alloc_pages",
        "__alloc_frozen_pages",
        "__alloc_pages_bulk",
        "alloc_pages_bulk",
        "free_unref_page",
        "free_unref_page_list",
        "free_unref_folios",
        "free_frozen_pages",
        "__free_frozen_pages",
        "free_pcppages_bulk",
        "__free_pages_ok",
        "__free_pages",
        "__free_one_page",
        "free_one_page",
        "__free_pages_core",
        "post_alloc_hook",
        "prep_compound_page",
        "rmqueue_bulk",
        "__rmqueue_pcplist",
        "free_contig_range",
        "split_page",
        "get_zeroed_page",
        "free_pages_exact",
        "alloc_pages_exact",
        "page_frag_free",
    ],
    &[
        "alloc_vmap_area",
        "__vmalloc_node_range",
        "__get_vm_area_node",
        "vfree",
        "vfree_atomic",
        "delayed_vfree_work",
        "vunmap",
        "remove_vm_area",
        "vread",
        "vread_iter",
        "vmap",
        "free_vmap_area_noflush",
        "pcpu_get_vm_areas",
        "vm_map_ram",
        "vm_unmap_ram",
        "__purge_vmap_area_lazy",
        "find_vm_area",
    ],
    &[
        "pcpu_alloc",
        "pcpu_free_area",
        "free_percpu",
        "pcpu_balance_workfn",
        "pcpu_populate_chunk",
        "pcpu_depopulate_chunk",
        "pcpu_create_chunk",
        "pcpu_find_block_fit",
        "pcpu_block_update_hint_alloc",
    ],
];
/// Most bytes between two functions of a file.
const GAP: u64 = 0x3000;
/// Parts of the names of code that the compiler has put elsewhere.
const PARTS: [&str; 4] = [".cold", ".part.", ".isra.", ".constprop."];

/// Sorted link-time ranges of the allocators' own code, which reads memory that nobody owns.
pub fn own_code(image: &KernelImage) -> Vec<(u64, u64)> {
    let mut ranges = Vec::new();
    for names in FILES {
        let mut known: Vec<(u64, u64)> =
            names.iter().flat_map(|name| variants(image, name)).filter_map(|at| range(image, at)).collect();
        known.sort_unstable();
        for pair in known.windows(2) {
            if pair[1].0 - pair[0].1.min(pair[1].0) < GAP {
                ranges.push((pair[0].0, pair[1].1));
            }
        }
        ranges.extend(known);
    }
    let all = |names: &[(u64, u64)], at: u64| names.iter().any(|&(from, to)| (from..to).contains(&at));
    // Code that belongs to these functions but lies elsewhere.
    let parts: Vec<(u64, u64)> = image
        .symbols()
        .filter(|symbol| PARTS.iter().any(|part| symbol.name.contains(part)))
        .filter(|symbol| {
            let whole = symbol.name.split('.').next().unwrap_or("");
            image.address_of(whole).is_some_and(|at| all(&ranges, at))
        })
        .filter_map(|symbol| range(image, symbol.address))
        .collect();
    ranges.extend(parts);
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (from, to) in ranges {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

fn variants<'a>(image: &'a KernelImage, name: &'a str) -> impl Iterator<Item = u64> + 'a {
    [name.to_owned(), format!("{name}_noprof")].into_iter().filter_map(|name| function(image, &name))
}

fn range(image: &KernelImage, at: u64) -> Option<(u64, u64)> {
    let symbol = image.symbol_at(at)?;
    let start = at - symbol.offset;
    Some((start, start + symbol.size.min(0x4000)))
}

/// The functions to be watched: rows of the table of summaries that are the allocators' own, and those of
/// [`MORE`].
pub fn calls(image: &KernelImage, table: &SummaryTable) -> Vec<Named> {
    let own = own_code(image);
    let is_own = |at: u64| own.iter().any(|&(from, to)| (from..to).contains(&at));
    let mut found: Vec<Named> = Vec::new();
    let mut add = |name: &str, address: u64, call: Call| {
        let returns = !call.begins();
        if !found.iter().any(|known| known.address == address) {
            found.push(Named { name: name.to_owned(), address, call, returns });
        }
    };
    for (names, params, call) in MORE {
        for plain in *names {
            for name in [(*plain).to_owned(), format!("{plain}_noprof")] {
                let Some(address) = function(image, &name) else { continue };
                let proto = image.btf().func_proto(&name);
                let has = |param: &&'static str| {
                    proto.as_ref().is_none_or(|proto| proto.params.iter().any(|p| p.name == **param))
                };
                if !params.iter().all(has) {
                    continue;
                }
                let places = places(image, &name, params);
                let place = |wanted: &str| {
                    places.iter().find(|(name, _)| *name == wanted).map_or(0, |&(_, place)| place)
                };
                let all = proto.as_ref().is_some_and(|proto| {
                    matches!(proto.result, guardrail_binfmt::btf::Type::Int { bits: ..=8, .. })
                });
                let call = match call(&place) {
                    Call::Bulk { count, objects, .. } => Call::Bulk { count, objects, all },
                    call => call,
                };
                add(&name, address, call);
            }
        }
    }
    for (name, row) in table.rows().filter(|(_, row)| is_own(row.address)) {
        for effect in &row.summary.effects {
            let call = match effect {
                Effect::Alloc { class: Class::Slab | Class::Cache, size, cache, .. } => match (cache, size) {
                    (Some(_), _) => Call::Object(Size::Cache),
                    (None, Len::Arg(arg)) => Call::Object(Size::Arg(*arg)),
                    (None, Len::Product(a, b)) => Call::Object(Size::Product(*a, *b)),
                    _ => continue,
                },
                Effect::Free { ptr: Ptr::Arg(arg), classes, .. }
                    if classes.iter().any(|class| matches!(class, Class::Slab | Class::Cache)) =>
                {
                    Call::Free(*arg)
                }
                Effect::Grow { ptr: Ptr::Arg(arg) } => Call::Grow(*arg),
                _ => continue,
            };
            add(name, row.address, call);
        }
    }
    found
}
