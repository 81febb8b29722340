use super::*;
use guardrail_abi::{Action, Field, Value, When};
use guardrail_binfmt::btf::Pointee;
use guardrail_binfmt::btf::testing::Builder;

/// `int send(struct frame *frame, int size)`, `struct frame *make(void)`, and `struct operations { void *owner; int (*send)(…) }`.
fn types() -> Arc<Btf> {
    let mut b = Builder::new(0);
    b.add("int", 1, 0, 4, &[1 << 24 | 32]); // 1
    b.add("", 2, 0, 0, &[]); // 2: void *
    let (next, len, data) = (b.name("next"), b.name("len"), b.name("data"));
    b.add("frame", 4, 3, 24, &[next, 2, 0, len, 1, 64, data, 2, 128]); // 3
    b.add("", 2, 0, 3, &[]); // 4: struct frame *
    let (frame, size) = (b.name("frame"), b.name("size"));
    b.add("", 13, 2, 1, &[frame, 4, size, 1]); // 5
    b.add("send", 12, 0, 5, &[]); // 6
    b.add("", 13, 0, 4, &[]); // 7
    b.add("make", 12, 0, 7, &[]); // 8
    b.add("", 2, 0, 5, &[]); // 9: int (*)(struct frame *, int)
    let (owner, send) = (b.name("owner"), b.name("send"));
    b.add("operations", 4, 2, 16, &[owner, 2, 0, send, 9, 64]); // 10
    b.add("", 13, 1, 1, &[frame, 4]); // 11
    b.add("steal", 12, 0, 11, &[]); // 12: int steal(struct frame *frame), to which nothing points
    b.add("", 2, 0, 10, &[]); // 13: struct operations *
    let (function, operations) = (b.name("function"), b.name("operations"));
    b.add("", 13, 2, 0, &[function, 9, operations, 13]); // 14
    b.add("enlist", 12, 0, 14, &[]); // 15: void enlist(int (*function)(struct frame *, int), struct operations *operations)
    Arc::new(Btf::parse(&b.build(), None).unwrap())
}

fn isolation(text: &str) -> Isolation<'_> {
    Isolation::new(&[("test", text)], vec![types()]).unwrap()
}

#[test]
fn the_tables_are_understood() {
    let isolation = Isolation::built_in(vec![types()]).unwrap();
    // A row about rights replaces the one about memory.
    let frame = isolation.function("__alloc_skb").unwrap();
    assert!(frame.after.iter().all(|step| !matches!(step.action, Action::Own { .. })), "{frame:?}");
    let kinds: Vec<_> = isolation.kinds().map(|(_, number)| number).collect();
    assert!(kinds.iter().all(|number| number.is_power_of_two()));
}

#[test]
fn functions_that_bring_something_are_handed_over_by_their_type() {
    let text = "enlist (function, operations): require_call function ; require_call operations->operations.send ; require_calls operations operations ; require_call operations";
    let isolation = isolation(text);
    let function = isolation.entry("send", &[]).function;
    assert_ne!(function, 0);
    // Nothing in the kernel calls functions of this type, so such an entry brings nothing.
    assert_eq!(isolation.entry("steal", &[]).function, 0);
    let first = Action::RequireCall { pointer: Value::Arg(0), function };
    let send = Value::Load(Box::new(Value::Arg(1)), 8, 8);
    let fields = vec![Field { offset: 8, size: function }];
    let wanted = [
        first.clone(),
        Action::RequireCall { pointer: send, function },
        Action::RequireCalls { pointer: Value::Arg(1), fields },
        // It points to no function.
        Action::RequireCall { pointer: Value::Arg(1), function: 0 },
    ];
    assert_eq!(isolation.function("enlist").unwrap().before, wanted.map(Step::from));
    assert_eq!(isolation.handed("enlist").before, [Step::from(first)]);
}

#[test]
fn a_row_with_one_kind_too_many_is_named() {
    let many: Vec<String> = (0..40).map(|number| format!("send (frame): own frame 1 k{number}")).collect();
    let error = Isolation::new(&[("test", &many.join("\n"))], vec![types()]).unwrap_err().to_string();
    assert_eq!(error, "test, line 11: 'k10' is one kind too many");
}

#[test]
fn verbs_have_the_names_of_the_contracts_actions() {
    for (verb, operands) in [
        ("grant", "frame 8"),
        ("revoke", "frame 8"),
        ("require_write", "frame 8"),
        ("require_call", "frame"),
        ("own", "frame 8 frame"),
        ("disown", "frame frame"),
        ("grant_fields", "frame frame"),
        ("revoke_fields", "frame frame"),
        ("create_object", "frame 8 frame"),
        ("require_object", "frame frame"),
        ("move_object", "frame frame sent"),
        ("destroy_object", "frame frame"),
        ("forget_object", "frame frame"),
        ("exit", ""),
    ] {
        let rights =
            format!("states frame: sent\ntype frame: len\nsend (frame, size): before {verb} {operands}");
        let send = isolation(&rights).function("send").unwrap();
        assert_eq!(send.before[0].action.function(), format!("guardrail_do_{verb}"));
    }
}

#[test]
fn calls_of_the_kernel_are_resolved() {
    let text = "type frame: len, absent, data\n\
                states frame: free, sent\n\
                make (): alloc slab sizeof(frame) ; grant_fields result frame ; create_object result 24 frame\n\
                send (size, frame): require_write frame->frame.data size ; require_object frame frame.free ; move_object frame frame sent ; fail 3\n\
                other (frame): custom it frame ; instead it frame";
    let isolation = isolation(text);
    let make = isolation.function("make").unwrap();
    assert!(make.before.is_empty());
    let valid = |action| Step { when: When::ResultValid, action };
    let size = Value::Const(24);
    let (slab, frame) = (isolation.number("slab").unwrap(), isolation.number("frame").unwrap());
    let fields = vec![Field { offset: 8, size: 4 }, Field { offset: 16, size: 8 }];
    let wanted = [
        Action::Grant { pointer: Value::Result, size: size.clone() },
        Action::Own { pointer: Value::Result, size: size.clone(), kind: slab },
        Action::GrantFields { pointer: Value::Result, fields },
        Action::CreateObject { pointer: Value::Result, size, kind: frame, fields: Vec::new() },
    ];
    assert_eq!(make.after, wanted.map(valid));
    let send = isolation.function("send").unwrap();
    // Arguments are known by name, and an `int` has 4 bytes.
    let data = Value::Load(Box::new(Value::Arg(0)), 16, 8);
    let wanted = [
        Action::RequireWrite { pointer: data, size: Value::Low(Box::new(Value::Arg(1)), 4) },
        Action::RequireObject { pointer: Value::Arg(0), kind: frame, state: Some(0) },
        Action::MoveObject { pointer: Value::Arg(0), kind: frame, from: None, to: 1 },
    ];
    assert_eq!(send.before, wanted.map(Step::from));
    let other = isolation.function("other").unwrap();
    let (pointer, size) = (Value::Arg(0), Value::Const(0));
    let instead = Action::Instead { name: "it".into(), pointer: pointer.clone(), size: size.clone() };
    assert_eq!(other.before, [instead.into()]);
    assert_eq!(other.after, [Action::Custom { name: "it".into(), pointer, size }.into()]);
    assert_eq!(isolation.function("another"), None);
    let left_out: Vec<_> = isolation.left_out().into_iter().collect();
    assert_eq!(left_out, ["frame: absent", "other: no such function"]);
}

#[test]
fn functions_of_the_driver_are_known_by_where_they_stand_and_by_their_type() {
    let text = "entry operations.send (frame, size): lend frame sizeof(frame) ; fail 7\n\
                argument frame (f): require_write f sizeof(f)";
    let isolation = isolation(text);
    let member = Member { structure: "operations".into(), member: "send".into() };
    assert_eq!(isolation.operations(16, &[(8, "send".into())]), [("send".into(), member.clone())]);
    assert!(isolation.operations(16, &[(8, "make".into())]).is_empty(), "of another type");
    assert!(isolation.operations(16, &[(0, "send".into())]).is_empty(), "no function stands there");
    assert!(isolation.operations(24, &[(8, "send".into())]).is_empty(), "of another size");
    let by_type = isolation.entry("send", &[]);
    assert_eq!(by_type, isolation.entry("send", std::slice::from_ref(&member)));
    assert_eq!((by_type.fail, by_type.members, by_type.unknown), (7, vec![member], vec![]));
    let (frame, size) = (Value::Arg(0), Value::Const(24));
    let custom =
        |name: &str| Action::Custom { name: name.into(), pointer: frame.clone(), size: size.clone() };
    let (give, take) = (custom("lend"), custom("lend_end"));
    let wanted = [give, Action::RequireWrite { pointer: frame.clone(), size: size.clone() }];
    assert_eq!(by_type.annotation.before, wanted.map(Step::from));
    assert_eq!(by_type.annotation.after[0].action, take);
    let make = isolation.entry("make", &[]);
    assert!(make.annotation.is_empty() && make.shape.is_some() && make.fail == 0);
    assert_eq!(isolation.entry("absent", &[]).shape, None);
}

#[test]
fn what_a_driver_declares_alone_brings_it_nothing() {
    let isolation = isolation("argument frame (f): require_write f sizeof(f)");
    let [send, steal] = ["send", "steal"].map(|name| isolation.entry(name, &[]));
    assert!(!send.annotation.is_empty() && send.pointers == [0] && send.kept == [0]);
    assert!(steal.annotation.is_empty() && steal.pointers.is_empty() && steal.kept.is_empty());
    // A member of other functions holds it.
    let members = [Member { structure: "operations".into(), member: "send".into() }];
    assert_eq!(isolation.entry("steal", &members).pointers, [0]);
}

#[test]
fn what_is_handed_over_and_returned_is_asked_for_by_its_type() {
    let text = "handed frame (f): before custom frame f\n\
                returned frame (): after custom returned_frame result ; fail -5\n\
                send (frame, size): require_write frame size ; raw size";
    let custom = |name: &str, pointer| Action::Custom { name: name.into(), pointer, size: Value::Const(0) };
    let handed = isolation(text).handed("send");
    let wanted = [custom("frame", Value::Arg(0)).into()];
    assert_eq!((handed.before.as_slice(), handed.after.len()), (&wanted[..], 0));
    // The line also holds without one for the function, but not where something is only to begin there.
    let alone = isolation("handed frame (f): before custom frame f");
    assert_eq!((alone.handed("send"), alone.function("send")), (handed, None));
    let raw = text.replace("raw size", "raw frame");
    assert!(isolation(&raw).handed("send").is_empty());
    assert!(isolation(text).handed("make").is_empty());
    let make = isolation(text).entry("make", &[]);
    let wanted = [Step { when: When::ResultValid, action: custom("returned_frame", Value::Result) }];
    assert_eq!((make.annotation.after.as_slice(), make.fail), (&wanted[..], -5));
    assert!(isolation(text).entry("send", &[]).annotation.is_empty());
    let absent = isolation("handed absent (a): before custom frame a").left_out();
    assert_eq!(absent.into_iter().collect::<Vec<_>>(), ["absent: no such structure"]);
}

/// A structure of functions with results of many types, all without parameters but the last.
fn results() -> Arc<Btf> {
    let mut b = Builder::new(0);
    b.add("int", 1, 0, 4, &[1 << 24 | 32]); // 1
    b.add("long int", 1, 0, 8, &[1 << 24 | 64]); // 2
    b.add("ssize_t", 8, 0, 2, &[]); // 3
    b.add("long unsigned int", 1, 0, 8, &[64]); // 4
    b.add("vm_fault_t", 8, 0, 4, &[]); // 5
    let (no, yes) = (b.name("NO"), b.name("YES"));
    b.add("answer", 6, 2, 4, &[no, u32::MAX, yes, 0]); // 6
    b.add("answer_t", 8, 0, 6, &[]); // 7
    b.add("", 2, 0, 0, &[]); // 8: void *
    b.add("ktime_t", 8, 0, 2, &[]); // 9
    b.add("char", 1, 0, 1, &[1 << 24 | 8]); // 10
    let mut next = 11;
    let mut members = Vec::new();
    for (number, result) in [1, 2, 3, 4, 5, 7, 8, 9, 10].into_iter().enumerate() {
        let parameters: &[u32] = if result == 8 { &[0, 1] } else { &[] };
        b.add("", 13, (parameters.len() / 2) as u32, result, parameters); // next
        b.add(&format!("f{number}"), 12, 0, next, &[]);
        b.add("", 2, 0, next, &[]);
        members.extend([b.name(&format!("m{number}")), next + 2, 64 * number as u32]);
        next += 3;
    }
    b.add("operations", 4, 9, 72, &members);
    Arc::new(Btf::parse(&b.build(), None).unwrap())
}

#[test]
fn what_an_ended_function_returns_follows_from_its_type() {
    let text = "result vm_fault_t (): fail 2\n\
                result ktime_t (): fail 0\n\
                result operations.m6 (): fail -5\n\
                entry operations.m0 (): fail 7";
    let isolation = Isolation::new(&[("test", text)], vec![results()]).unwrap();
    // int by its own row, long, ssize_t, unsigned long, vm_fault_t, an enumeration with a negative value, a pointer by
    // its member, ktime_t, and a char.
    let at = |number: usize| Member { structure: "operations".to_owned(), member: format!("m{number}") };
    let wanted = [7, -5, -5, 0, 2, 0, -5, 0, 0];
    for (number, wanted) in wanted.into_iter().enumerate() {
        let name = format!("f{number}");
        assert_eq!(isolation.entry(&name, &[at(number)]).fail, wanted, "{name}");
    }
    // Without a member, the prototype and its names decide.
    assert_eq!([1, 4, 6].map(|number| isolation.entry(&format!("f{number}"), &[]).fail), [-5, 2, -5]);
    // Of a function without a type nothing is known.
    assert_eq!(isolation.entry("absent", &[]).fail, 0);
    let text = "result absent_t, operations.absent, answer, answer_t, operations.m1 (): fail 2";
    let left = Isolation::new(&[("test", text)], vec![results()]).unwrap().left_out();
    assert_eq!(Vec::from_iter(left), ["absent_t: no such result", "operations.absent: no such result"]);
}

#[test]
fn registrations_are_noted_with_what_undoes_them() {
    let text = "undo send (frame, size): undo make frame size frame if ok\n\
                undo other (a, b): undone make any b";
    let isolation = isolation(text);
    let size = Value::Low(Box::new(Value::Arg(1)), 4);
    let values = vec![Value::Arg(0), size.clone(), Value::Arg(0)];
    let inverse = || "make".to_owned();
    let made = Step { when: When::ResultZero, action: Action::Registers { inverse: inverse(), values } };
    assert_eq!((isolation.undo("send").after, isolation.undo("send").before.len()), (vec![made], 0));
    // No line of its own covers the function.
    assert_eq!(isolation.function("send"), None);
    // The function that undoes it takes no arguments by its type, so that none are compared.
    let undone = Action::Unregisters { inverse: inverse(), values: Vec::new(), counts: 0 };
    assert_eq!(isolation.undo("make").before, [undone.into()]);
    let values = vec![Value::Const(0), Value::Arg(1)];
    let undone = Action::Unregisters { inverse: inverse(), values, counts: 2 };
    assert_eq!(isolation.undo("other").before, [undone.into()]);
    let left = Vec::from_iter(isolation.left_out());
    assert_eq!(left, ["other: no such function"]);
    let wrong = |text| Isolation::new(&[("test", text)], vec![types()]).unwrap_err().to_string();
    assert!(wrong("undo send (frame): undo make").contains("2 words follow 'undo'"));
    assert!(wrong("undo send (frame): undo make any").contains("'any' after 'undo' is no value"));
}

#[test]
fn exports_of_needed_modules_without_types_count_as_the_kernels() {
    let domain = Pointee { struct_name: Some("active".to_owned()), ..Pointee::default() };
    let proto = Proto::new(vec![("a".to_owned(), Type::Ptr(domain))], false, Type::Void);
    let text = "argument active (a): custom begins a\n\
                enroll (driver): require_call [driver+16] start ; require_call [driver+24] absent";
    let of = |needed: &[&str]| {
        let one = |name: &&str| ((*name).to_owned(), proto.clone());
        let needed = needed.iter().map(one).collect();
        let prototypes = Prototypes::from([one(&"main")]);
        Isolation::new(
            &[("test", text)],
            Types { btf: vec![types()], prototypes, needed, ..Types::default() },
        )
        .unwrap()
    };
    // What the driver alone declares brings nothing.
    assert_eq!(of(&[]).entry("main", &[]).annotation, Annotation::default());
    assert_eq!(of(&[]).function("enroll").unwrap(), Annotation::default());
    let isolation = of(&["start"]);
    let entry = isolation.entry("main", &[]);
    assert_eq!((entry.annotation.before.len(), entry.pointers, entry.unknown), (1, vec![0], vec![]));
    let [Step { action: Action::RequireCall { function, .. }, .. }] =
        &isolation.function("enroll").unwrap().before[..]
    else {
        panic!("one function is required, since of the other no type is known")
    };
    assert_eq!((*function, *function != 0), (entry.function, true));
    assert_eq!(isolation.shape("start").map(|shape| shape.stack_words), Some(0));
}

#[test]
fn a_message_has_the_effects_of_its_row() {
    let text = "wait (a, boxes, pointer, number): received pointer number
send (a, box, pointer): emitted pointer box a
received disk.issue, disk.flush (command, bytes): grant_ref command ; lend [command+8] bytes
received other.thing (p): grant_ref p";
    let boxes = [("disk.issue".to_owned(), 4), ("disk.flush".to_owned(), 9)].into();
    let types = Types { btf: vec![types()], messages: boxes, ..Types::default() };
    let isolation = Isolation::new(&[("test", text)], types).unwrap();
    let annotation = isolation.function("wait").unwrap();
    let custom = |name: &str, pointer, size| Action::Custom { name: name.to_owned(), pointer, size };
    let data = Value::Load(Box::new(Value::Add(Box::new(Value::Arg(2)), Box::new(Value::Const(8)))), 0, 8);
    let expected = [
        custom("active_received", Value::Const(0), Value::Const(0x50a)),
        custom("grant_ref", Value::Arg(2), Value::Const(0)),
        custom("active_lend", data, Value::Arg(3)),
    ];
    assert_eq!(annotation.after, expected.map(Step::from));
    assert!(annotation.before.is_empty());
    // No row is about a message that the driver emits.
    assert!(isolation.function("send").unwrap().is_empty());
}
