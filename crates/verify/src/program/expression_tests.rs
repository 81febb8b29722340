use super::*;

/// The value of an expression over one cell.
fn value(arena: &Arena, id: Id, cell: u64) -> u64 {
    let at = |id| value(arena, id, cell);
    let bits = arena.bits(id);
    match arena.get(id) {
        E::Number(_, value) => value,
        E::Cell(..) => cell & mask(bits),
        E::Binary(operation, bits, a, b) => calculate(operation, bits, at(a), at(b)).unwrap_or(0),
        E::Compare(predicate, a, b) => u64::from(holds(predicate, arena.bits(a), at(a), at(b))),
        E::Zero(_, a) => at(a),
        E::Sign(bits, a) => signed(arena.bits(a), at(a)) as u64 & mask(bits),
        E::Cut(bits, a) => at(a) & mask(bits),
        E::Select(c, a, b) => {
            if at(c) != 0 {
                at(a)
            } else {
                at(b)
            }
        }
        other => panic!("{other:?}"),
    }
}

/// Each simplification gives what plain arithmetic gives, for all values of a byte.
/// An expression, and what it is of the number.
type Form = (Id, fn(u64) -> u64);

#[test]
fn simplified_expressions_mean_the_same() {
    use Binary::*;
    use Predicate::*;
    let mut arena = Arena::default();
    let x = arena.cell(0, 8);
    let numbers =
        [0u64, 1, 2, 5, 0x3f, 0x40, 0x7f, 0x80, 0x81, 0xfe, 0xff, 0x100, 0x1ff, 0x8000, 0xff80, 0xffff];
    let mut forms: Vec<Form> = vec![(x, |v| v)];
    let zero = arena.zero(16, x);
    forms.push((zero, |v| v));
    let sign = arena.sign(16, x);
    forms.push((sign, |v| signed(8, v) as u64 & 0xffff));
    for &(form, plain) in &forms {
        let bits = arena.bits(form);
        for &n in &numbers {
            let n = n & mask(bits);
            let number = arena.constant(bits, n);
            for operation in [Add, Sub, Mul, UDiv, URem, And, Or, Xor, Shl, LShr, AShr] {
                let once = arena.binary(operation, form, number);
                for &m in &numbers {
                    let m = m & mask(bits);
                    let second = arena.constant(bits, m);
                    let twice = arena.binary(And, once, second);
                    let low = arena.cut(8, twice);
                    for predicate in [Eq, Ne, Ult, Ule, Ugt, Uge, Slt, Sle, Sgt, Sge] {
                        let left = arena.compare(predicate, once, second);
                        let right = arena.compare(predicate, second, once);
                        let turned = arena.not(left);
                        for v in [0u64, 1, 2, 4, 0x3f, 0x40, 0x41, 0x7f, 0x80, 0x81, 0xfe, 0xff] {
                            let Some(plain) = calculate(operation, bits, plain(v), n) else { continue };
                            assert_eq!(value(&arena, once, v), plain, "{operation:?} {n} of {v}");
                            assert_eq!(value(&arena, low, v), plain & m & 0xff);
                            let expected = holds(predicate, bits, plain, m);
                            assert_eq!(
                                value(&arena, left, v) == 1,
                                expected,
                                "{operation:?} {n} {predicate:?} {m} of {v}"
                            );
                            assert_eq!(value(&arena, right, v) == 1, holds(predicate, bits, m, plain));
                            assert_eq!(value(&arena, turned, v) == 1, !expected);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn counters_of_a_byte_stay_of_a_byte() {
    let mut arena = Arena::default();
    let x = arena.cell(0, 8);
    let wide = arena.zero(32, x);
    let one = arena.constant(32, 1);
    let sum = arena.binary(Binary::Add, wide, one);
    let back = arena.cut(8, sum);
    let narrow = arena.constant(8, 1);
    assert_eq!(back, arena.binary(Binary::Add, x, narrow));
}

/// The size of an expression is what going through it finds, and an expression that is forgotten can be made again.
#[test]
fn sizes_are_those_of_the_tree() {
    let mut arena = Arena::default();
    let mut all = vec![arena.cell(0, 8), arena.symbol(4, 8), arena.constant(8, 5), arena.symbol(2, 8)];
    let start = arena.count();
    let mut build = |arena: &mut Arena| {
        for at in 0..40 {
            let (a, b) = (all[at * 7 % all.len()], all[at * 3 % all.len()]);
            let both = arena.binary([Binary::And, Binary::Or, Binary::Add][at % 3], a, b);
            let zero = arena.zero(16, both);
            let less = arena.compare(Predicate::Ult, a, both);
            let other = arena.select(less, a, both);
            all.extend([both, other]);
            assert!(arena.size(zero).nodes >= arena.size(both).nodes || arena.number(zero).is_some());
        }
        all.truncate(4);
    };
    build(&mut arena);
    let made: Vec<E> = (0..arena.count()).map(|id| arena.get(id)).collect();
    arena.truncate(start);
    assert_eq!(arena.count(), start);
    build(&mut arena);
    assert_eq!(made, (0..arena.count()).map(|id| arena.get(id)).collect::<Vec<E>>());
    fn sum(arena: &Arena, id: Id, depth: u32) -> bool {
        let own = matches!(arena.get(id), E::Binary(Binary::Add, ..));
        depth == 0 || own || arena.operands(id).any(|operand| sum(arena, operand, depth - 1))
    }
    let mut large = 0;
    for id in 0..arena.count() {
        let mut free = 0;
        let nodes = arena.leaves(id, 1 << 16, &mut |leaf| {
            if let E::Symbol(symbol, _) = leaf {
                free = free.max(symbol + 1);
            }
        });
        let size = arena.size(id);
        large += u32::from(nodes > 1 << 16);
        if nodes <= 1 << 16 {
            assert_eq!((size.nodes as usize, size.free), (nodes, free), "{id}");
        } else {
            assert!(size.nodes > 1 << 16, "{id}");
        }
        for depth in [1, 3, 16] {
            assert_eq!(size.has_sum(depth), sum(&arena, id, depth), "{id} {depth}");
        }
    }
    assert!(large < arena.count() / 2 && arena.count() > 80, "{large} {}", arena.count());
}
