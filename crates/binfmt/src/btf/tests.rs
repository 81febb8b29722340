use super::testing::Builder;
use super::*;

fn example() -> Btf {
    let mut b = Builder::new(0);
    b.add("int", 1, 0, 4, &[1 << 24 | 32]); // 1
    b.add("", 3, 0, 0, &[1, 1, 3]); // 2: int[3]
    let (x, y) = (b.name("x"), b.name("y"));
    b.add("", 5, 2, 12, &[x, 1, 0, y, 2, 0]); // 3: union { int x; int y[3]; }
    let (head, inner) = (b.name("head"), b.name("inner"));
    b.add("outer", 4, 3, 28, &[head, 1, 0, 0, 3, 32, inner, 3, 128]); // 4
    b.add("", 10, 0, 4, &[]); // 5: const struct outer
    b.add("", 2, 0, 5, &[]); // 6: const struct outer *
    b.add("", 2, 0, 0, &[]); // 7: void *
    let (o, data, len) = (b.name("o"), b.name("data"), b.name("len"));
    b.add("", 13, 4, 1, &[o, 6, data, 7, len, 1, 0, 0]); // 8
    b.add("fill", 12, 0, 8, &[]); // 9
    let (low, high) = (b.name("LOW"), b.name("HIGH"));
    b.add("range", 6, 2, 4, &[low, 3, high, 9]); // 10
    let wide = b.name("WIDE");
    b.add("wide", 19, 1, 8, &[wide, 1, 2]); // 11
    b.add("self", 8, 0, 12, &[]); // 12: a typedef of itself
    b.add("", 3, 0, 0, &[13, 1, 2]); // 13: an array of itself
    Btf::parse(&b.build(), None).unwrap()
}

#[test]
fn members_are_found_through_dots_indices_and_anonymous_unions() {
    let btf = example();
    assert_eq!(btf.member_offset("outer", "head"), Some(0));
    assert_eq!(btf.member_offset("outer", "x"), Some(4));
    assert_eq!(btf.member_offset("outer", "y[2]"), Some(12));
    assert_eq!(btf.member_offset("outer", "inner.y[1]"), Some(20));
    assert_eq!(btf.member_offset("outer", "y[3]"), None);
    assert_eq!(btf.member_offset("outer", "absent"), None);
    assert_eq!(btf.size_of(btf.struct_named("outer").unwrap()), Some(28));
}

#[test]
fn places_have_names() {
    let mut b = Builder::new(0);
    b.add("int", 1, 0, 4, &[1 << 24 | 32]); // 1
    b.add("", 3, 0, 0, &[1, 1, 3]); // 2: int[3]
    let (x, y) = (b.name("x"), b.name("y"));
    b.add("slot", 5, 2, 12, &[x, 1, 0, y, 2, 0]); // 3: union
    b.add("", 3, 0, 0, &[3, 1, 2]); // 4: union slot[2]
    b.add("", 3, 0, 0, &[3, 1, 0]); // 5: union slot[]
    let (slots, low, high, more) = (b.name("slots"), b.name("low"), b.name("high"), b.name("more"));
    // Bits 3 and 9 of a word behind the slots, four bytes of padding, and an array without a length.
    let bits = |at: u32, size: u32| size << 24 | at;
    b.add(
        "ring",
        4,
        4,
        32,
        &[slots, 4, 0, low, 1, bits(192, 3), high, 1, bits(195, 9), more, 5, bits(256, 0)],
    );
    b.add("same", 4, 0, 28, &[]);
    b.add("other", 4, 0, 28, &[]);
    let mut btf = Btf::parse(&b.build(), None).unwrap();
    let ring = btf.struct_named("ring").unwrap();
    // The flag says that members carry sizes of bitfields.
    let at = btf.offsets[ring as usize - 1] as usize + 7;
    btf.types[at] |= 0x80;
    let field = |offset| btf.field_at(ring, offset);
    assert_eq!(field(0).as_deref(), Some("slots[0].x"));
    assert_eq!(field(16).as_deref(), Some("slots[1].y[1]"));
    assert_eq!(field(24).as_deref(), Some("low"));
    assert_eq!(field(25).as_deref(), Some("high"));
    assert_eq!(field(28), None);
    assert_eq!(field(32 + 12 * 5).as_deref(), Some("more[5].x"));
    assert_eq!((btf.bits(ring, "low"), btf.bits(ring, "high")), (Some((192, 3)), Some((195, 9))));
    assert_eq!((btf.bits(ring, "slots"), btf.bits(ring, "absent")), (None, None));
    assert_eq!(btf.only_struct_of_size(32), Some("ring"));
    assert_eq!((btf.only_struct_of_size(28), btf.only_struct_of_size(7)), (None, None));
}

#[test]
fn a_pointer_tells_the_structure_that_it_points_to() {
    let mut b = Builder::new(0);
    b.add("int", 1, 0, 4, &[1 << 24 | 32]); // 1
    b.add("", 3, 0, 0, &[1, 1, 0]); // 2: int[]
    let (count, all) = (b.name("count"), b.name("all"));
    b.add("open", 4, 2, 4, &[count, 1, 0, all, 2, 32]); // 3
    b.add("plain", 4, 1, 4, &[count, 1, 0]); // 4
    b.add("", 2, 0, 3, &[]); // 5: struct open *
    b.add("", 2, 0, 4, &[]); // 6: struct plain *
    b.add("", 3, 0, 0, &[6, 1, 2]); // 7: struct plain *[2]
    b.add("", 2, 0, 1, &[]); // 8: int *
    b.add("", 2, 0, 0, &[]); // 9: void *
    let names = ["a", "b", "c", "d"].map(|name| b.name(name));
    let members: Vec<u32> = names
        .into_iter()
        .zip([(5, 0), (7, 64), (8, 192), (9, 256)])
        .flat_map(|(n, (t, at))| [n, t, at])
        .collect();
    b.add("driver", 4, 4, 40, &members); // 10
    let btf = Btf::parse(&b.build(), None).unwrap();
    let driver = btf.struct_named("driver").unwrap();
    let pointed = |offset| btf.pointed_at(driver, offset).map(|to| (to.name, to.size, to.open));
    assert_eq!(pointed(0), Some(("open", 4, true)));
    assert_eq!([pointed(8), pointed(16)], [Some(("plain", 4, false)); 2]);
    // A number, nothing that is known, the middle of a pointer, and what is behind the end.
    assert_eq!([pointed(24), pointed(32), pointed(4), pointed(40)], [None; 4]);
}

#[test]
fn members_of_a_type_are_found_by_where_they_begin() {
    let mut b = Builder::new(0);
    b.add("int", 1, 0, 4, &[1 << 24 | 32]); // 1
    let raw = b.name("raw");
    b.add("", 4, 1, 4, &[raw, 1, 0]); // 2: struct { int raw; }
    b.add("rwlock_t", 8, 0, 2, &[]); // 3
    b.add("spinlock", 4, 1, 4, &[raw, 1, 0]); // 4
    b.add("spinlock_t", 8, 0, 4, &[]); // 5
    b.add("", 3, 0, 0, &[5, 1, 2]); // 6: spinlock_t[2]
    let (first, names, count, all) = (b.name("first"), b.name("names"), b.name("count"), b.name("all"));
    b.add("table", 4, 2, 8, &[names, 3, 0, count, 1, 32]); // 7
    b.add("driver", 4, 3, 20, &[first, 4, 0, names, 7, 32, all, 6, 96]); // 8
    let btf = Btf::parse(&b.build(), None).unwrap();
    let driver = btf.struct_named("driver").unwrap();
    let lock = |offset| btf.field_of_type(driver, offset, &["spinlock", "spinlock_t", "rwlock_t"]);
    assert_eq!(lock(0).as_deref(), Some("first"));
    assert_eq!(lock(4).as_deref(), Some("names.names"));
    assert_eq!(lock(16).as_deref(), Some("all[1]"));
    // The count of the table, the middle of a lock, and what is behind the end.
    assert_eq!((lock(8), lock(2), lock(20)), (None, None, None));
    assert_eq!(btf.field_at(driver, 16).as_deref(), Some("all[1].raw"));
}

#[test]
fn prototypes_tell_what_pointers_point_to() {
    let proto = example().func_proto("fill").unwrap();
    assert!(proto.variadic);
    assert_eq!(proto.result, Type::Int { bits: 32, signed: true });
    assert_eq!(proto.params.len(), 3);
    let Type::Ptr(first) = &proto.params[0].ty else { panic!("not a pointer") };
    assert_eq!((first.size, first.is_const, first.struct_name.as_deref()), (Some(28), true, Some("outer")));
    let Type::Ptr(second) = &proto.params[1].ty else { panic!("not a pointer") };
    assert!(second.is_void && second.size.is_none());
    assert_eq!(proto.params[2].register, Some(2));
    let btf = example();
    let raw = |id| btf.raw(id).map(|t| t.kind);
    let not = (1..btf.end_id()).find(|&id| raw(id) == Some(Kind::Ptr)).unwrap();
    assert_eq!(btf.pointed_proto(not), None, "it points to a structure");
}

#[test]
fn enumerators_have_values() {
    let btf = example();
    assert_eq!(btf.enum_value("HIGH"), Some(9));
    assert_eq!(btf.enum_value("WIDE"), Some(2 << 32 | 1));
    assert_eq!(btf.enum_value_in("wide", "HIGH"), None);
}

#[test]
fn circles_end() {
    let btf = example();
    assert_eq!(btf.size_of(12), None);
    assert_eq!(btf.size_of(13), None);
    assert_eq!((btf.field_at(12, 0), btf.field_at(13, 0)), (None, None));
    assert_eq!(btf.resolve(12), None);
}

#[test]
fn a_module_continues_its_base() {
    let base = Arc::new(example());
    let mut b = Builder::new(base.strings.len() as u32);
    let own = b.name("own");
    b.add("private", 4, 1, 40, &[own, 4, 64]);
    let btf = Btf::parse(&b.build(), Some(base)).unwrap();
    assert_eq!(btf.member_offset("private", "own.inner.x"), Some(8 + 16));
    assert_eq!(btf.member_offset("outer", "inner"), Some(16));
}

#[test]
fn damaged_bytes_are_errors_or_answers_but_no_panics() {
    let mut b = Builder::new(0);
    b.add("int", 1, 0, 4, &[32]);
    b.add("s", 4, 2, 8, &[1, 1, 0, 1, 2, 0]);
    b.add("f", 13, 2, 1, &[1, 2, 1, 3]);
    let good = b.build();
    for cut in 0..good.len() {
        assert!(Btf::parse(&good[..cut], None).is_err());
    }
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            if let Ok(btf) = Btf::parse(&bad, None) {
                for id in 0..btf.end_id() + 2 {
                    let _ = (btf.size_of(id), btf.proto(id), btf.member(id, "int.int"));
                    let _ = (btf.field_at(id, 0), btf.field_at(id, 5), btf.only_struct_of_size(8));
                }
                let _ = (btf.enum_value("x"), btf.func_proto("f"));
            }
        }
    }
}
