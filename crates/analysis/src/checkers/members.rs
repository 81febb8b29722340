//! Names of members of objects, from the types that drivers and the kernel define.

use crate::machine::{Object, State};

/// How many objects are followed from an object to the one that holds its address.
const MOST_HOLDERS: u32 = 4;
/// Structures that are parts of others: a pointer to one says nothing of the object that it is in.
const PARTS: [&str; 6] = ["list_head", "hlist_head", "hlist_node", "llist_node", "rb_node", "callback_head"];

/// The member at an offset of an object, as `structure.member`, by the types of a module.
pub fn field(state: &State, object: &Object, module: &str, offset: u64) -> Option<String> {
    member(state, object, module, offset, |structure, at| state.world.field(module, structure, at))
}

/// The lock that begins at an offset of an object, as `structure.member`, by the types of a module.
pub fn lock(state: &State, object: &Object, module: &str, offset: u64) -> Option<String> {
    member(state, object, module, offset, |structure, at| state.world.lock_field(module, structure, at))
}

/// What `name` says of an offset in an object, behind the name of the structure that the object is, or has there.
fn member(
    state: &State,
    object: &Object,
    module: &str,
    offset: u64,
    name: impl Fn(&str, u64) -> Option<String>,
) -> Option<String> {
    let (structure, at) = structure(state, object, module, offset, MOST_HOLDERS)?;
    Some(format!("{structure}.{}", name(&structure, at)?))
}

/// The structure at an offset of an object, and the offset in it. In an array it is the element.
fn structure(
    state: &State,
    object: &Object,
    module: &str,
    offset: u64,
    holders: u32,
) -> Option<(String, u64)> {
    let of_size = state.world.type_of_size(module, object.size);
    of_size
        .map(|structure| (structure, offset))
        .or_else(|| in_netdev(state, object, module, offset))
        .or_else(|| pointed(state, object, module, offset, holders))
}

/// A network device, or the driver's own part of it, which lies behind the kernel's part, both aligned.
fn in_netdev(state: &State, object: &Object, module: &str, offset: u64) -> Option<(String, u64)> {
    let world = &state.world;
    let device = world.size_of("net_device").filter(|size| object.size >= *size)?;
    if !is_netdev(state, object.start) {
        return None;
    }
    if offset < device {
        return Some(("net_device".to_owned(), offset));
    }
    let private = device.next_multiple_of(32);
    let rest = object.size.checked_sub(private)?;
    let sizes = [Some(rest), rest.checked_sub(31)];
    let structure = sizes.into_iter().flatten().find_map(|size| world.type_of_size(module, size))?;
    Some((structure, offset.checked_sub(private)?))
}

/// What the pointer points to by which another object holds this one.
fn pointed(state: &State, object: &Object, module: &str, offset: u64, holders: u32) -> Option<(String, u64)> {
    let (holder, at) = object.held_at?;
    let (_, holder) = state.objects.at(holder).filter(|(_, found)| found.start == holder)?;
    let (structure, at) = structure(state, holder, module, at, holders.checked_sub(1)?)?;
    let pointed = state.world.pointed_at(module, &structure, at)?;
    if pointed.size == 0 || PARTS.contains(&pointed.name.as_str()) {
        return None;
    }
    let at = match (object.size.is_multiple_of(pointed.size), pointed.open && object.size > pointed.size) {
        (_, true) => offset,
        (true, false) => offset % pointed.size,
        (false, false) => return None,
    };
    Some((pointed.name, at))
}

fn is_netdev(state: &State, at: u64) -> bool {
    let chart = state.order.charts().iter().position(|chart| chart.name == "netdev");
    chart.is_some_and(|chart| state.order.instances(chart).any(|(_, key, _)| key[0] == at))
}
