//! A driver's state that changes through another name is never taken for unchanged.

use super::{fixture, out};
use guardrail_tests::program;
use std::path::Path;
use std::process::Command;

/// A way to change the state, as texts of C for `alias.c`.
struct Case {
    what: &'static str,
    top: &'static str,
    once: &'static str,
    change: &'static str,
}

/// All of these make `mode` 1 on some run.
const FAULTY: &[Case] = &[
    Case {
        what: "a local pointer of a top half",
        top: "static int top(int irq, void *data) { struct driver *d = data; u32 *p = &d->mode; *p = 1; return 0; }",
        once: "request_irq(top, d);",
        change: "",
    },
    Case {
        what: "a helper of a top half",
        top: "static void set(u32 *p) { *p = 1; } static int top(int irq, void *data) { struct driver *d = data; set(&d->mode); return 0; }",
        once: "request_irq(top, d);",
        change: "",
    },
    Case {
        what: "memset in a top half",
        top: "static int top(int irq, void *data) { struct driver *d = data; memset(d, 1, sizeof(*d)); return 0; }",
        once: "request_irq(top, d);",
        change: "",
    },
    Case {
        what: "assembly in a top half",
        top: "static int top(int irq, void *data) { struct driver *d = data; asm volatile(\"orl %1, %0\" : \"+m\"(d->mode) : \"r\"(1)); return 0; }",
        once: "request_irq(top, d);",
        change: "",
    },
    Case {
        what: "an atomic operation in a top half",
        top: "static int top(int irq, void *data) { struct driver *d = data; __sync_fetch_and_or(&d->mode, 1); return 0; }",
        once: "request_irq(top, d);",
        change: "",
    },
    Case {
        what: "a copy of a structure in a top half",
        top: "static int top(int irq, void *data) { struct driver *d = data; struct driver x = { .mode = 1 }; *d = x; return 0; }",
        once: "request_irq(top, d);",
        change: "",
    },
    Case {
        what: "the whole without its type in a top half",
        top: "static int top(int irq, void *data) { u32 *p = data; p[0] = 1; p[1] = 1; return 0; }",
        once: "request_irq(top, d);",
        change: "",
    },
    Case {
        what: "a member of it without its type in a top half",
        top: "static int top(int irq, void *data) { u32 *p = data; *p = 1; return 0; }",
        once: "request_irq(top, &d->mode);",
        change: "",
    },
    Case {
        what: "one of two pointers without a type",
        top: "static u32 other[4];",
        once: "",
        change: "{ void *p = d; if (device_read(1)) p = other; memset(p, 1, sizeof(*d)); }",
    },
    Case { what: "a function that fills what it gets", top: "", once: "", change: "fill(d, sizeof(*d));" },
    Case {
        what: "the first member by a pointer of its type",
        top: "",
        once: "",
        change: "{ u32 *p = (u32 *)d; if (device_read(1)) p = &d->flags; *p = 1; p[1] = 1; }",
    },
    Case {
        what: "a pointer in a variable",
        top: "static void *kept;",
        once: "kept = d;",
        change: "((u32 *)kept)[0] = 1; ((u32 *)kept)[1] = 1;",
    },
    Case {
        what: "a pointer in the structure itself",
        top: "",
        once: "d->link = d;",
        change: "((u32 *)d->link)[0] = 1; ((u32 *)d->link)[1] = 1;",
    },
    Case {
        what: "a pointer to a member in the structure",
        top: "",
        once: "d->link = &d->mode;",
        change: "*(u32 *)d->link = 1;",
    },
    Case {
        what: "a number that is an address",
        top: "",
        once: "u64 x = (u64)d;",
        change: "((u32 *)x)[0] = 1; ((u32 *)x)[1] = 1;",
    },
    Case {
        what: "a pointer in a local structure",
        top: "struct pair { u32 pad; u32 *p; };",
        once: "struct pair w; w.p = &d->mode;",
        change: "*w.p = 1;",
    },
    Case {
        what: "a structure that is passed by value",
        top: "struct pair { u32 *p; }; static void put(struct pair w) { *w.p = 1; }",
        once: "struct pair w; w.p = &d->mode;",
        change: "put(w);",
    },
    Case {
        what: "an array of pointers",
        top: "",
        once: "u32 *all[2]; all[0] = &d->flags; all[1] = &d->mode;",
        change: "*all[device_read(0) & 1] = 1;",
    },
    Case {
        what: "a pointer to a pointer",
        top: "",
        once: "",
        change: "{ u32 *q = &d->mode; u32 **qq = &q; **qq = 1; }",
    },
    Case {
        what: "a function that is called by pointer",
        top: "static void set(u32 *p) { *p = 1; } struct ops { void (*f)(u32 *); }; static struct ops ops = { set };",
        once: "",
        change: "ops.f(&d->mode);",
    },
    Case {
        what: "a variable that a helper of it writes",
        top: "static u32 mode; static void set2(u32 *p) { *p = 1; } static void set(void) { set2(&mode); } struct ops { void (*f)(void); }; static struct ops ops = { set };",
        once: "",
        change: "mode = 0; ops.f(); d->mode = mode;",
    },
    Case {
        what: "the driver in a variable",
        top: "static struct driver *known; static void set(void) { known->mode = 1; } struct ops { void (*f)(void); }; static struct ops ops = { set };",
        once: "known = d;",
        change: "ops.f();",
    },
    Case {
        what: "assembly that gets the whole",
        top: "",
        once: "",
        change: "asm volatile(\"movl $1, (%0)\" :: \"r\"(d) : \"memory\");",
    },
    Case {
        what: "assembly that gets a member",
        top: "",
        once: "",
        change: "asm volatile(\"movl $1, (%0)\" :: \"r\"(&d->mode) : \"memory\");",
    },
    Case {
        what: "a union",
        top: "union both { struct driver d; u32 raw[8]; };",
        once: "union both *u = (union both *)d;",
        change: "u->raw[0] = 1; u->raw[1] = 1;",
    },
    Case { what: "bytes", top: "", once: "u8 *b = (u8 *)d;", change: "b[0] = 1; b[4] = 1;" },
    Case {
        what: "bytes at an unknown index",
        top: "",
        once: "u8 *b = (u8 *)d;",
        change: "b[device_read(0) & 7] = 1;",
    },
    Case {
        what: "two structures of one type",
        top: "struct item { u32 n; };",
        once: "struct item *x = kzalloc(4, 0), *y = kzalloc(4, 0); if (!x || !y) return;",
        change: "x->n = 1; y->n = 0; d->mode = x->n;",
    },
    Case {
        what: "an element of an array",
        top: "struct item { u32 v; }; static struct item items[4];",
        once: "",
        change: "items[0].v = 0; items[device_read(0) & 3].v = 1; d->mode = items[0].v;",
    },
    Case {
        what: "a pointer that walks an array",
        top: "static u32 items[4];",
        once: "",
        change: "items[0] = 0; u32 *p = items; for (int i = 0; i < 4; i++) *p++ = 1; d->mode = items[0];",
    },
    Case {
        what: "a function that other files may call",
        top: "void late(struct driver *d) { u32 *p = &d->mode; *p = 1; }",
        once: "",
        change: "",
    },
    Case {
        what: "a structure that is passed by value and changed there",
        top: "struct big { u32 mode; u64 rest[8]; }; static void clear(struct big b) { b.mode = 0; }",
        once: "",
        change: "struct big b; b.mode = 1; clear(b); d->mode = b.mode;",
    },
    Case {
        what: "a pointer to another structure that leads to a member",
        top: "struct item { u32 n; }; struct items { struct item a, b; };",
        once: "",
        change: "{ void *p = &d->mode; if (device_read(0)) p = &d->flags; struct item *x = p; x->n = 1; }",
    },
];

/// None of these changes `mode`.
const RIGHT: &[Case] = &[
    Case { what: "nothing", top: "", once: "", change: "" },
    Case {
        what: "another member by a local pointer of a top half",
        top: "static int top(int irq, void *data) { struct driver *d = data; u32 *p = &d->flags; *p = 1; return 0; }",
        once: "request_irq(top, d);",
        change: "",
    },
    Case {
        what: "a helper on another member",
        top: "static void set(u32 *p) { *p = 1; } static int top(int irq, void *data) { struct driver *d = data; set(&d->flags); return 0; }",
        once: "request_irq(top, d);",
        change: "",
    },
    Case {
        what: "assembly on another member",
        top: "static int top(int irq, void *data) { struct driver *d = data; asm volatile(\"orl %1, %0\" : \"+m\"(d->flags) : \"r\"(1)); return 0; }",
        once: "request_irq(top, d);",
        change: "",
    },
    Case {
        what: "a pointer to another member in a local structure",
        top: "struct pair { u32 pad; u32 *p; };",
        once: "struct pair w; w.p = &d->flags;",
        change: "*w.p = 1;",
    },
    Case {
        what: "a function by pointer on another member",
        top: "static void set(u32 *p) { *p = 1; } struct ops { void (*f)(u32 *); }; static struct ops ops = { set };",
        once: "",
        change: "ops.f(&d->flags);",
    },
    Case {
        what: "the structure in a variable, by its type",
        top: "static struct driver *known; static void set(void) { known->flags = 1; }",
        once: "known = d;",
        change: "set();",
    },
];

/// Verifies it, with `mode` as the first or the second member: the status and the text.
fn verify(folder: &Path, case: &Case, second: bool) -> (Option<i32>, String) {
    verify_with(folder, case, second, &[])
}

/// Verifies it together with other files.
fn verify_with(folder: &Path, case: &Case, second: bool, others: &[&Path]) -> (Option<i32>, String) {
    let file = folder.join("alias.c");
    let Case { top, once, change, .. } = case;
    let order = if second { "#define MODE_IS_SECOND\n" } else { "" };
    let mut text = format!("{order}#define TOP {top}\n#define ONCE {once}\n#define CHANGE {change}\n");
    text.push_str(&std::fs::read_to_string(fixture("alias.c")).unwrap());
    std::fs::write(&file, text).unwrap();
    let output = Command::new(program())
        .arg("verify")
        .arg(&file)
        .args(others)
        .args(["--no-kernel", "--main", "main_loop", "--protocols", "bus", "--chart"])
        .arg(fixture("alias.chart"))
        .output()
        .unwrap();
    (output.status.code(), out(&output))
}

#[test]
fn a_state_that_changes_by_another_name_is_not_proved() {
    let folder = tempfile::tempdir().unwrap();
    for case in FAULTY {
        for second in [false, true] {
            let (status, text) = verify(folder.path(), case, second);
            assert_eq!(status, Some(1), "{}, mode second: {second}: {text}", case.what);
            assert!(text.contains("protocol-rule-1"), "{}: {text}", case.what);
        }
    }
}

#[test]
fn a_state_that_nothing_changes_is_proved() {
    let folder = tempfile::tempdir().unwrap();
    for case in RIGHT {
        for second in [false, true] {
            let (status, text) = verify(folder.path(), case, second);
            assert_eq!(status, Some(0), "{}, mode second: {second}: {text}", case.what);
        }
    }
}

/// Variables of two files that have one name are two.
#[test]
fn variables_of_files_are_apart() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.c");
    let text = "static unsigned int mode; void clear(void) { mode = 0; }\nunsigned int look(void) { return mode; }\n";
    std::fs::write(&other, text).unwrap();
    let top = "static u32 mode; extern void clear(void);";
    let case = Case { what: "", top, once: "", change: "mode = 1; clear(); d->mode = mode;" };
    let (status, text) = verify_with(folder.path(), &case, false, &[&other]);
    assert_eq!(status, Some(1), "{text}");
}
