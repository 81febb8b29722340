//! Names of members of objects, from the types that drivers and the kernel define.

use crate::machine::{Object, State};

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
    let world = &state.world;
    let named = |structure: &str, at| Some(format!("{structure}.{}", name(structure, at)?));
    if let Some(structure) = world.type_of_size(module, object.size) {
        return named(&structure, offset);
    }
    // The driver's own part of a network device lies behind the kernel's part, both aligned.
    let device = world.size_of("net_device").filter(|size| object.size >= *size)?;
    if !is_netdev(state, object.start) {
        return None;
    }
    if offset < device {
        return named("net_device", offset);
    }
    let private = device.next_multiple_of(32);
    let rest = object.size.checked_sub(private)?;
    let sizes = [Some(rest), rest.checked_sub(31)];
    let structure = sizes.into_iter().flatten().find_map(|size| world.type_of_size(module, size))?;
    named(&structure, offset.checked_sub(private)?)
}

fn is_netdev(state: &State, at: u64) -> bool {
    let chart = state.order.charts().iter().position(|chart| chart.name == "netdev");
    chart.is_some_and(|chart| state.order.instances(chart).any(|(_, key, _)| key[0] == at))
}
