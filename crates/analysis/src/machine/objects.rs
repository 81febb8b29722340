//! Objects: allocated and freed memory, with the stacks of allocation and free.

use crate::stacks::StackId;
use guardrail_knowledge::effect::Class;
use rustc_hash::FxHashMap;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};

/// Number of an object; a number is not reused before the object is forgotten.
pub type ObjectId = u32;

/// Most freed objects that are remembered.
const QUARANTINE: usize = 1 << 16;
/// Most objects that are known at a time.
const MAX_OBJECTS: usize = 1 << 20;
/// Most frees by the driver that are remembered after the memory was allocated again.
const MAX_GRAVES: usize = 4096;
/// Larger objects of kmalloc, in bytes, are pages.
pub const LARGEST_SLAB: u64 = 8192;
/// Longest object in bytes.
const MAX_SIZE: u64 = 1 << 40;

/// An object that is or was allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// First address of the memory that the object occupies.
    pub base: u64,
    /// The address behind the memory that it occupies.
    pub slot_end: u64,
    /// The address that the allocator returned.
    pub start: u64,
    /// Bytes that the caller asked for.
    pub size: u64,
    /// The kind of allocator.
    pub class: Class,
    /// Guest address of the `kmem_cache` that it is from, or 0.
    pub cache: u64,
    /// The driver called the allocator itself.
    pub by_driver: bool,
    /// Its memory was zeroed on request, or its user is the kernel.
    pub defined: bool,
    /// The driver passed its address to a kernel function that may have become its owner.
    pub escaped: bool,
    /// Stack of the allocation.
    pub allocated: StackId,
    /// Stack of the free; `None` while it is allocated.
    pub freed: Option<StackId>,
    /// Index of the module that was loaded when the driver allocated it.
    pub module: Option<u32>,
    /// Number of the allocation; grows with each one.
    pub serial: u64,
    /// Where the driver first stored the address that the allocator returned: the start of the object there, and
    /// the offset in it. `None` where it stored it nowhere, or nobody followed it.
    pub held_at: Option<(u64, u64)>,
}

impl Object {
    /// The address behind its last byte.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.size)
    }

    /// Whether it is allocated now.
    pub fn is_live(&self) -> bool {
        self.freed.is_none()
    }
}

/// All objects, by address.
#[derive(Debug, Default)]
pub struct Objects {
    by_base: BTreeMap<u64, ObjectId>,
    table: FxHashMap<ObjectId, Object>,
    quarantine: VecDeque<(ObjectId, u64)>,
    /// Objects that the driver freed, as they were then, whose memory was allocated again.
    graves: BTreeMap<u64, Object>,
    grave_order: VecDeque<u64>,
    next: ObjectId,
    serial: u64,
    recent: Recent,
}

/// Number of objects that were found last and can be found faster again.
const RECENT: usize = 64;

/// The objects that were found last, by a hash of the address: base, end of the slot, and number. An object that is
/// forgotten may still be among them.
#[derive(Debug)]
struct Recent(Box<[Cell<(u64, u64, ObjectId)>; RECENT]>);

impl Default for Recent {
    fn default() -> Self {
        Recent(Box::new([const { Cell::new((0, 0, 0)) }; RECENT]))
    }
}

impl Recent {
    fn place(&self, addr: u64) -> &Cell<(u64, u64, ObjectId)> {
        &self.0[((addr >> 12 ^ addr >> 6) % RECENT as u64) as usize]
    }
}

impl Objects {
    /// The object `id`; `None` where it is forgotten.
    pub fn get(&self, id: ObjectId) -> Option<&Object> {
        self.table.get(&id)
    }

    /// The object `id`, mutable; its addresses must stay.
    pub fn get_mut(&mut self, id: ObjectId) -> Option<&mut Object> {
        self.table.get_mut(&id)
    }

    /// The serial number of the newest object; newer objects have larger numbers.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// The object whose memory, with padding, holds `addr`.
    pub fn at(&self, addr: u64) -> Option<(ObjectId, &Object)> {
        let place = self.recent.place(addr);
        let (base, end, id) = place.get();
        if (base..end).contains(&addr)
            && let Some(object) = self.table.get(&id)
            && (object.base, object.slot_end) == (base, end)
        {
            return Some((id, object));
        }
        let (_, &id) = self.by_base.range(..=addr).next_back()?;
        let object = self.table.get(&id)?;
        place.set((object.base, object.slot_end, id));
        (addr < object.slot_end).then_some((id, object))
    }

    /// Whether `addr` is a mapped register of a device.
    pub fn is_device(&self, addr: u64) -> bool {
        self.at(addr).is_some_and(|(_, object)| object.class == Class::Io)
    }

    /// All objects, by address.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectId, &Object)> {
        self.by_base.values().filter_map(|id| Some((*id, self.table.get(id)?)))
    }

    /// Adds an object, and returns the objects that lay in its memory. `None` where the addresses make no
    /// object.
    pub fn add(&mut self, mut object: Object) -> Option<(ObjectId, Vec<Object>)> {
        let sane = object.base <= object.start
            && object.start.checked_add(object.size).is_some_and(|end| end <= object.slot_end)
            && object.slot_end > object.base
            && object.slot_end - object.base <= MAX_SIZE;
        if !sane {
            return None;
        }
        let gone = self.clear(object.base, object.slot_end);
        if self.table.len() >= MAX_OBJECTS {
            return None;
        }
        self.serial += 1;
        object.serial = self.serial;
        self.next = self.next.wrapping_add(1);
        let id = self.next;
        self.by_base.insert(object.base, id);
        self.table.insert(id, object);
        Some((id, gone))
    }

    /// Forgets the objects that overlap the range, and returns them.
    pub fn clear(&mut self, from: u64, to: u64) -> Vec<Object> {
        let mut gone = Vec::new();
        while let Some((&base, &id)) = self.by_base.range(..to).next_back() {
            if self.table.get(&id).is_some_and(|o| o.slot_end <= from) {
                break;
            }
            self.by_base.remove(&base);
            if let Some(object) = self.table.remove(&id) {
                if object.freed.is_some() && object.by_driver {
                    self.bury(object.clone());
                }
                gone.push(object);
            }
        }
        gone
    }

    fn bury(&mut self, object: Object) {
        if self.graves.insert(object.start, object.clone()).is_none() {
            self.grave_order.push_back(object.start);
        }
        if self.grave_order.len() > MAX_GRAVES
            && let Some(oldest) = self.grave_order.pop_front()
        {
            self.graves.remove(&oldest);
        }
    }

    /// The object that the driver freed at `start`, where the memory was allocated again.
    pub fn grave(&self, start: u64) -> Option<&Object> {
        self.graves.get(&start)
    }

    /// Marks an object as freed. Returns the objects that are forgotten to make room.
    pub fn free(&mut self, id: ObjectId, stack: StackId) -> Vec<Object> {
        if let Some(object) = self.table.get_mut(&id) {
            object.freed = Some(stack);
            self.quarantine.push_back((id, object.serial));
        }
        let mut gone = Vec::new();
        while self.quarantine.len() > QUARANTINE {
            let Some((id, serial)) = self.quarantine.pop_front() else { break };
            if self.table.get(&id).is_some_and(|o| o.serial == serial && o.freed.is_some())
                && let Some(object) = self.table.remove(&id)
            {
                self.by_base.remove(&object.base);
                gone.push(object);
            }
        }
        gone
    }
}

/// The size in bytes of the slot that kmalloc takes `size` bytes from.
pub fn kmalloc_slot(size: u64) -> u64 {
    match size {
        65..=96 => 96,
        129..=192 => 192,
        0..=LARGEST_SLAB => size.next_power_of_two().max(8),
        // Larger objects take whole pages, a power of two of them.
        _ => size.checked_next_power_of_two().unwrap_or(size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(base: u64, size: u64) -> Object {
        Object {
            base,
            slot_end: base.saturating_add(kmalloc_slot(size)),
            start: base,
            size,
            class: Class::Slab,
            cache: 0,
            by_driver: true,
            defined: false,
            escaped: false,
            allocated: StackId::default(),
            freed: None,
            module: None,
            serial: 0,
            held_at: None,
        }
    }

    #[test]
    fn slots_are_kmallocs_size_classes() {
        for (size, slot) in
            [(1, 8), (9, 16), (65, 96), (97, 128), (100, 128), (150, 192), (193, 256), (9000, 16384)]
        {
            assert_eq!(kmalloc_slot(size), slot, "{size}");
        }
    }

    #[test]
    fn memory_that_is_allocated_again_forgets_what_was_there() {
        let mut objects = Objects::default();
        let (a, _) = objects.add(object(0x1000, 100)).unwrap();
        objects.free(a, StackId::default());
        assert!(!objects.at(0x1064).unwrap().1.is_live());
        let (_, gone) = objects.add(object(0x1040, 64)).unwrap();
        assert_eq!(gone.len(), 1);
        assert!(objects.at(0x1000).is_none());
        assert!(objects.grave(0x1000).is_some());
    }

    #[test]
    fn impossible_objects_are_refused() {
        let mut objects = Objects::default();
        assert!(objects.add(object(u64::MAX - 7, 0)).is_none() || objects.at(u64::MAX - 7).is_some());
        assert!(objects.add(Object { size: u64::MAX, ..object(0x1000, 1) }).is_none());
    }

    #[test]
    fn the_quarantine_is_bounded() {
        let mut objects = Objects::default();
        for i in 0..(QUARANTINE as u64 + 10) {
            let (id, _) = objects.add(object(0x1000 + i * 64, 64)).unwrap();
            objects.free(id, StackId::default());
        }
        assert_eq!(objects.iter().count(), QUARANTINE);
    }
}
