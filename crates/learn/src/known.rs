//! What is known of functions beforehand: the rows of `memory.txt`, and functions that every other calls.

use crate::summary::{Deep, Summary};
use crate::types::Types;
use crate::value::{ARGS, Fresh, Kind, Set, Size, Val};
use guardrail_binfmt::btf::Proto;
use guardrail_knowledge::effect::Class;
use guardrail_knowledge::table::{self, Clause};
use rustc_hash::FxHashMap;

/// The bit of memory that is freed later, after a grace period.
pub const LATER: u16 = 1 << 15;

/// Beginnings of names of functions that only read what they get: tracing, messages, checks that end in a message.
const READERS: [&str; 22] = [
    "__traceiter_",
    "__SCT__tp_func_",
    "__probestub_",
    "trace_event_",
    "trace_raw_output_",
    "perf_trace_",
    "__bpf_trace_",
    "__warn",
    "__ubsan_handle",
    "_printk",
    "printk",
    "vprintk",
    "dev_printk",
    "dev_vprintk",
    "__dev_printk",
    "netdev_printk",
    "__netdev_printk",
    "__dynamic_",
    "debug_check_no_",
    "dump_stack",
    "__check_object_size",
    // The result is a copy, or a constant, which nobody writes or frees.
    "kstrdup_const",
];

/// Functions whose arguments lead nowhere: what the compiler calls everywhere, and what waits or yields.
const PLAIN: [&str; 21] = [
    "__fentry__",
    "__stack_chk_fail",
    "panic",
    "schedule",
    "preempt_schedule",
    "preempt_schedule_notrace",
    "__SCT__preempt_schedule",
    "__SCT__preempt_schedule_notrace",
    "__SCT__might_resched",
    "__SCT__cond_resched",
    "__cond_resched",
    "synchronize_rcu",
    "synchronize_net",
    "__rcu_read_lock",
    "__rcu_read_unlock",
    "rcu_barrier",
    "msleep",
    "schedule_timeout",
    "oops_enter",
    "bust_spinlocks",
    "might_fault",
];

/// Beginnings of names of functions in assembly that leave the registers of arguments as they are.
const PRESERVING: [&str; 15] = [
    "__fentry__",
    "preempt_schedule",
    "__SCT__preempt_schedule",
    "__get_user_",
    "__put_user_",
    "__sw_hweight",
    "clear_page",
    "copy_user_",
    "rep_movs_alternative",
    "rep_stos_alternative",
    "__clear_user",
    "clear_user_",
    "__raw_callee_save",
    "cmpxchg8b_emu",
    "this_cpu_cmpxchg",
];

/// Whether a function leaves the registers of arguments as they are, by its name.
pub fn preserves(name: &str) -> bool {
    PRESERVING.iter().any(|start| name.starts_with(start))
}

/// Whether a function only reads through its arguments, by its name.
pub fn only_reads(name: &str) -> bool {
    READERS.iter().any(|start| name.starts_with(start)) || PLAIN.contains(&name)
}

/// The number of a kind of allocation.
fn class_number(name: &str) -> Option<u8> {
    Class::NAMED.iter().position(|(known, _)| *known == name).map(|at| at as u8)
}

/// The name of a kind of allocation.
pub fn class_name(number: u8) -> &'static str {
    Class::NAMED.get(usize::from(number)).map_or("?", |(name, _)| name)
}

/// What `memory.txt` says of functions, by their names.
pub fn models(types: &Types) -> FxHashMap<String, Summary> {
    let mut found = FxHashMap::default();
    for row in table::Kind::Memory.rows() {
        for name in &row.names {
            for name in [(*name).to_owned(), format!("{name}_noprof")] {
                let proto = types.btf().func_proto(&name);
                found.entry(name).or_insert_with(|| model(&row, proto.as_ref()));
            }
        }
    }
    found
}

fn model(row: &table::Row<'_>, proto: Option<&Proto>) -> Summary {
    let mut summary = Summary::harmless();
    let register = |name: &str| -> Option<usize> {
        let named = |proto: &Proto| {
            let param = proto.params.iter().find(|param| param.name == name)?;
            param.register.map(usize::from)
        };
        let all = |proto: &&Proto| {
            row.params.iter().all(|name| proto.params.iter().any(|param| param.name == *name))
        };
        let place = || row.params.iter().position(|param| *param == name);
        proto.filter(all).map_or_else(place, named).filter(|place| *place < ARGS)
    };
    for effect in &row.effects {
        apply(&mut summary, effect, &register);
    }
    summary
}

fn apply(summary: &mut Summary, effect: &Clause<'_>, register: &dyn Fn(&str) -> Option<usize>) {
    let word = |index| effect.word(index).unwrap_or_default();
    let arg = |index| register(word(index));
    match effect.verb() {
        "alloc" => {
            let Some(class) = class_number(word(1)) else { return };
            if effect.words.contains(&"page") && effect.words.len() > 3 {
                return;
            }
            let size = match (word(2).parse(), arg(2)) {
                (Ok(number), _) => Size::Const(number),
                (_, Some(arg)) => Size::Arg(arg as u8, 1),
                _ => Size::Unknown,
            };
            let kind = Kind::Fresh(Fresh { class, size });
            summary.result = Some(Val { kind, maybe: false, ..Val::TOP });
        }
        "free" | "take" => {
            let kinds = word(2).split('|').filter_map(class_number).fold(0, |all, class| all | 1 << class);
            let inner = word(1).strip_prefix("page(").and_then(|rest| rest.strip_suffix(')'));
            let Some(arg) = register(inner.unwrap_or(word(1))) else { return };
            let taken = effect.verb() == "take";
            summary.args[arg].free |= if taken { LATER } else { kinds };
            // What a grace period ends may lie at an offset of what is freed.
            summary.args[arg].inner_free |= taken;
            summary.freed |= 1 << arg;
        }
        "define" | "copy" => {
            let Some(to) = arg(1) else { return };
            let length = if effect.verb() == "copy" { word(3) } else { word(2) };
            let bound = length.rsplit_once('/').map_or(length, |(_, bound)| bound);
            let extent = &mut summary.args[to].write;
            match (bound.parse(), register(bound)) {
                (Ok(number), _) => extent.add(0, number),
                (_, Some(count)) => extent.add_counted(count as u8, 1),
                _ => extent.unbounded = true,
            }
            if effect.verb() == "copy"
                && let Some(from) = arg(2)
            {
                summary.args[from].read = true;
            }
        }
        "read" | "touser" => {
            if let Some(from) = arg(1) {
                summary.args[from].read = true;
            }
        }
        "escape" => {
            if let Some(kept) = arg(1) {
                summary.args[kept].keep = true;
            }
        }
        "grow" => {
            if let Some(grown) = arg(1) {
                summary.args[grown].read = true;
            }
        }
        "cache" => {
            if let Some(called) = arg(1) {
                summary.args[called].keep = true;
            }
        }
        "dmamap" => {
            let page = word(1).strip_prefix("page(").and_then(|rest| rest.split([',', ')']).next());
            if let Some(mapped) = page.and_then(register) {
                summary.args[mapped].deep.add(Deep::READ);
            }
        }
        _ => {}
    }
}

/// What a function does that only reads.
pub fn reader() -> Summary {
    let mut summary = Summary::harmless();
    summary.args.iter_mut().for_each(|arg| arg.read = true);
    summary
}

/// The arguments in a set.
pub fn members(set: Set) -> impl Iterator<Item = usize> {
    (0..ARGS).filter(move |arg| set & 1 << arg != 0)
}
