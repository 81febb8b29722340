//! What a protocol's text says, before its hierarchy is flattened.

/// Which side of a protocol sends a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The kernel sends, the driver receives: `in`.
    In,
    /// The driver sends, the kernel receives: `out`.
    Out,
}

impl Direction {
    /// The word of the language.
    pub fn word(self) -> &'static str {
        match self {
            Direction::In => "in",
            Direction::Out => "out",
        }
    }

    /// The paper's sign: `?` for a message that the driver receives, `!` for one that it sends.
    pub fn sign(self) -> char {
        match self {
            Direction::In => '?',
            Direction::Out => '!',
        }
    }
}

/// A protocol: a statechart whose transitions are messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// The name, such as `pci`.
    pub name: String,
    /// The file that it was read from, as the caller named it.
    pub file: String,
    /// Number of the line of `protocol NAME`, from 1.
    pub line: usize,
    /// Name of the object chart whose callbacks and calls its messages stand for; `None` if it stands alone.
    pub of: Option<String>,
    /// All states; each stands behind the one that it is part of.
    pub states: Vec<State>,
    /// All messages, in the order of the file.
    pub messages: Vec<Message>,
    /// All transitions as they were written: one for each line.
    pub transitions: Vec<Transition>,
}

/// A state as it was written. The flags of a super-state hold for all its parts, except `initial`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The name, without those of the states that it is part of.
    pub name: String,
    /// Index of the state that it is part of; `None` at the top.
    pub parent: Option<usize>,
    /// Whether its super-state is entered here; at the top, whether the protocol starts here.
    pub initial: bool,
    /// Whether the driver may end here.
    pub final_: bool,
    /// Whether one of the enabled incoming messages comes if the driver awaits them all.
    pub fair: bool,
    /// Whether the driver must leave it, because the kernel waits for an answer.
    pub owed: bool,
    /// Number of its line.
    pub line: usize,
}

/// A kind of message, which is a mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The name, such as `probe`.
    pub name: String,
    /// Which side sends it.
    pub direction: Direction,
    /// Its parameters: at most one pointer and one number.
    pub payload: Vec<Parameter>,
    /// Whether the driver may sleep while it handles the message. Always false for those that the driver sends.
    pub sleeps: bool,
    /// Whether it is queued before those that wait. Always false for those that the driver sends.
    pub head: bool,
    /// How many may be queued at once; 1 or more.
    pub room: u32,
    /// Number of its first line.
    pub line: usize,
}

/// A parameter of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The name.
    pub name: String,
    /// Its type.
    pub kind: ParameterKind,
}

/// The type of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A pointer to this type, such as `struct sk_buff`.
    Pointer(String),
    /// A C `long`.
    Number,
}

/// A line `in|out MESSAGE: STATES -> STATE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Index of the message.
    pub message: usize,
    /// Indices of the states as they were written; a super-state stands for each leaf in it.
    pub from: Vec<usize>,
    /// Index of the state as it was written; `None` is `same`.
    pub to: Option<usize>,
    /// Messages that stay in their boxes, although the next state does not allow them, until a state does.
    pub keeps: Vec<usize>,
    /// Messages that the kernel's side takes out of their boxes and answers.
    pub refuses: Vec<usize>,
    /// What a recorded run of a stock driver shows of it; `None` if the line does not say.
    pub link: Option<Link>,
    /// Drivers may do without the callback of the link. The run of an object that never has it does not show the message.
    pub optional: bool,
    /// Number of its line.
    pub line: usize,
}

/// What stands for a transition in a recorded run of a driver that is not active.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// A callback of the object chart begins.
    Begin(String),
    /// A callback of the object chart ends with such a result.
    End(String, Outcome),
    /// The driver calls one of these kernel functions, and they return such a result.
    Call(Vec<String>, Outcome),
    /// A run does not show it.
    Unseen,
}

/// The results for which a link holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Any result.
    Any,
    /// Zero, and no other.
    Zero,
    /// Other than zero.
    NonZero,
}

impl Protocol {
    /// A state's name after those of the states that it is part of, as `bound.running`.
    pub fn path(&self, state: usize) -> String {
        let mut names: Vec<&str> =
            self.around(state).filter_map(|at| Some(self.states.get(at)?.name.as_str())).collect();
        names.reverse();
        names.join(".")
    }

    /// A state and those that it is part of, from the inside.
    pub fn around(&self, state: usize) -> impl Iterator<Item = usize> {
        // A state stands behind the one that it is part of, so this ends.
        std::iter::successors(Some(state), |&at| {
            self.states.get(at).and_then(|state| state.parent).filter(|&parent| parent < at)
        })
    }

    /// The states right inside a state, or at the top.
    pub fn parts(&self, state: Option<usize>) -> impl Iterator<Item = usize> {
        (0..self.states.len()).filter(move |&part| self.states[part].parent == state)
    }

    /// The states that have no parts, in the order of the file.
    pub fn leaves(&self) -> impl Iterator<Item = usize> {
        (0..self.states.len()).filter(|&state| self.parts(Some(state)).next().is_none())
    }

    /// The leaf that a transition to a state enters, or in which the protocol starts; `None` if some state on
    /// the way down has no initial part.
    pub fn entry(&self, state: Option<usize>) -> Option<usize> {
        let mut at = state;
        loop {
            let mut parts = self.parts(at).peekable();
            if parts.peek().is_none() {
                return at;
            }
            at = Some(parts.find(|&part| self.states[part].initial)?);
        }
    }
}

impl Message {
    /// The parameter that is a pointer, and its type.
    pub fn pointer(&self) -> Option<(&str, &str)> {
        self.payload.iter().find_map(|parameter| match &parameter.kind {
            ParameterKind::Pointer(target) => Some((parameter.name.as_str(), target.as_str())),
            ParameterKind::Number => None,
        })
    }

    /// The parameter that is a number.
    pub fn number(&self) -> Option<&str> {
        let number = |parameter: &&Parameter| parameter.kind == ParameterKind::Number;
        self.payload.iter().find(number).map(|parameter| parameter.name.as_str())
    }

    /// The name behind the paper's sign, as `?probe`.
    pub fn signed(&self) -> String {
        format!("{}{}", self.direction.sign(), self.name)
    }
}
