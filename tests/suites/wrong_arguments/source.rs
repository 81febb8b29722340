//! The generated part of the module: a call of each function.

use crate::functions::{Function, Kind, Word};
use std::fmt::Write;

/// The types of the victim's objects, in the order of `victims()` in `main.c`.
const VICTIMS: [&str; 33] = [
    "",
    "mutex",
    "spinlock",
    "rwlock_t",
    "rw_semaphore",
    "semaphore",
    "completion",
    "wait_queue_head",
    "wait_queue_entry",
    "kref",
    "kobject",
    "device",
    "timer_list",
    "hrtimer",
    "work_struct",
    "tasklet_struct",
    "callback_head",
    "list_head",
    "rb_root",
    "rb_node",
    "xarray",
    "idr",
    "seq_file",
    "scatterlist",
    "miscdevice",
    "net_device",
    "sk_buff",
    "task_struct",
    "file",
    "module",
    "workqueue_struct",
    "page",
    "kmem_cache",
];

fn victim(word: &Word) -> usize {
    let structure =
        word.structure.as_deref().map(|name| if name == "raw_spinlock" { "spinlock" } else { name });
    structure.and_then(|name| VICTIMS.iter().position(|known| *known == name)).unwrap_or(0)
}

fn kind(word: &Word) -> &'static str {
    match word.kind {
        Kind::Number => "NUMBER",
        Kind::Flags => "FLAGS",
        Kind::Pointer => "POINTER",
        Kind::Text => "TEXT",
        Kind::Code => "CODE",
    }
}

/// The file. Functions are declared by names of their own, so that they may have any prototype here.
pub fn calls(functions: &[Function], namespaces: &[String]) -> String {
    let mut text = "/* SPDX-License-Identifier: GPL-2.0-or-later */\n/* Generated. */\n#include <linux/module.h>\n\n#include \"wrong.h\"\n\n".to_owned();
    let (mut cases, mut table) = (String::new(), String::new());
    for (number, function) in functions.iter().enumerate() {
        let (name, count) = (&function.name, function.words.len());
        let mut types = vec!["unsigned long"; count];
        types.extend(function.variadic.then_some("..."));
        let words: Vec<String> = (0..count).map(|place| format!("w[{place}]")).collect();
        _ = writeln!(text, "extern long f{number}({}) __asm__(\"{name}\");", types.join(", "));
        _ = writeln!(
            text,
            "static noinline long call_{name}(const unsigned long *w)\n{{\n\tlong result = f{number}({});\n\n\tbarrier();\n\treturn result;\n}}\n",
            words.join(", ")
        );
        _ = writeln!(cases, "\tcase {number}:\n\t\treturn call_{name}(words);");
        let kinds: Vec<String> =
            function.words.iter().map(|word| format!("{{ {}, {} }}", kind(word), victim(word))).collect();
        _ = writeln!(table, "\t{{ {count}, {{ {} }} }},", kinds.join(", "));
    }
    _ = writeln!(
        text,
        "long call_function(unsigned int number, const unsigned long *words)\n{{\n\tswitch (number) {{\n{cases}\t}}\n\treturn 0;\n}}\n"
    );
    _ = writeln!(
        text,
        "const struct function functions[] = {{\n{table}}};\nconst unsigned int n_functions = {};\n",
        functions.len()
    );
    for namespace in namespaces {
        _ = writeln!(text, "MODULE_INFO(import_ns, \"{namespace}\");");
    }
    text
}
