//! JSON by the letter of RFC 8259, to be compared with the parser that taskgate uses; and a maker of JSON texts.

use std::{collections::HashSet, fmt::Write as _, ops::Range};

use arbitrary::Unstructured;

/// A value, and where it stands in the text.
#[derive(Debug)]
pub struct Node {
    /// Its first and last byte.
    pub span: Range<usize>,
    /// The values in it.
    pub inner: Inner,
}

/// What is in a value.
#[derive(Debug)]
pub enum Inner {
    /// A string, a number, `true`, `false` or `null`.
    Scalar,
    /// The items of an array.
    Items(Vec<Node>),
    /// The members of an object: where the key stands, and the value.
    Members(Vec<(Range<usize>, Node)>),
}

/// Why a text cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub enum Problem {
    /// It is not JSON.
    NotJson,
    /// It nests deeper than allowed. The rest of the text was not looked at.
    TooDeep,
}

/// Reads a text that nests at most `depth` deep.
pub fn parse(text: &str, depth: usize) -> Result<Node, Problem> {
    let mut reader = Reader { bytes: text.as_bytes(), at: 0 };
    let node = reader.value(depth)?;
    reader.space();
    if reader.at == text.len() { Ok(node) } else { Err(Problem::NotJson) }
}

impl Node {
    /// Returns the value's own text.
    pub fn raw<'a>(&self, text: &'a str) -> &'a str {
        &text[self.span.clone()]
    }

    /// Returns the members of an object by the meaning of their keys. `None` for anything else, for a key that no
    /// string can hold (half of a surrogate pair), and for a duplicate key.
    pub fn members<'a>(&'a self, text: &str) -> Option<Vec<(String, &'a Node)>> {
        let Inner::Members(members) = &self.inner else { return None };
        let mut seen = HashSet::new();
        let named = members.iter().map(|(key, node)| Some((serde_json::from_str(&text[key.clone()]).ok()?, node)));
        let named: Option<Vec<(String, &Node)>> = named.collect();
        named.filter(|members| members.iter().all(|(key, _)| seen.insert(key.clone())))
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    fn take(&mut self, wanted: impl Fn(u8) -> bool) -> bool {
        let found = self.at < self.bytes.len() && wanted(self.bytes[self.at]);
        self.at += usize::from(found);
        found
    }

    fn need(&mut self, wanted: impl Fn(u8) -> bool) -> Result<(), Problem> {
        if self.take(wanted) { Ok(()) } else { Err(Problem::NotJson) }
    }

    fn space(&mut self) {
        while self.take(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) {}
    }

    fn value(&mut self, depth: usize) -> Result<Node, Problem> {
        self.space();
        let start = self.at;
        let inner = match self.peek() {
            b'{' | b'[' if depth == 0 => return Err(Problem::TooDeep),
            b'{' => Inner::Members(self.list(b'}', |reader| {
                reader.space();
                let start = reader.at;
                reader.string()?;
                let key = start..reader.at;
                reader.space();
                reader.need(|byte| byte == b':')?;
                Ok((key, reader.value(depth - 1)?))
            })?),
            b'[' => Inner::Items(self.list(b']', |reader| reader.value(depth - 1))?),
            b'"' => self.string().map(|()| Inner::Scalar)?,
            b't' | b'f' | b'n' => self.word().map(|()| Inner::Scalar)?,
            _ => self.number().map(|()| Inner::Scalar)?,
        };
        Ok(Node { span: start..self.at, inner })
    }

    fn list<T>(&mut self, end: u8, item: impl Fn(&mut Self) -> Result<T, Problem>) -> Result<Vec<T>, Problem> {
        let mut items = Vec::new();
        self.at += 1;
        self.space();
        if self.take(|byte| byte == end) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            self.space();
            if self.take(|byte| byte == end) {
                return Ok(items);
            }
            self.need(|byte| byte == b',')?;
        }
    }

    fn string(&mut self) -> Result<(), Problem> {
        self.need(|byte| byte == b'"')?;
        loop {
            if self.take(|byte| byte == b'"') {
                return Ok(());
            }
            if self.take(|byte| byte == b'\\') {
                if self.take(|byte| byte == b'u') {
                    for _ in 0..4 {
                        self.need(|byte| byte.is_ascii_hexdigit())?;
                    }
                } else {
                    self.need(|byte| b"\"\\/bfnrt".contains(&byte))?;
                }
            } else {
                self.need(|byte| byte >= b' ')?;
            }
        }
    }

    fn word(&mut self) -> Result<(), Problem> {
        let rest = &self.bytes[self.at..];
        let word = [&b"true"[..], b"false", b"null"].into_iter().find(|word| rest.starts_with(word));
        self.at += word.ok_or(Problem::NotJson)?.len();
        Ok(())
    }

    fn number(&mut self) -> Result<(), Problem> {
        self.take(|byte| byte == b'-');
        if !self.take(|byte| byte == b'0') {
            self.digits()?;
        }
        if self.take(|byte| byte == b'.') {
            self.digits()?;
        }
        if self.take(|byte| matches!(byte, b'e' | b'E')) {
            self.take(|byte| matches!(byte, b'+' | b'-'));
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Problem> {
        self.need(|byte| byte.is_ascii_digit())?;
        while self.take(|byte| byte.is_ascii_digit()) {}
        Ok(())
    }
}

/// Raw keys that mean something to taskgate, written in more than one way.
const KEYS: [&str; 24] = [
    r#""jsonrpc""#,
    r#""id""#,
    r#""\u0069d""#,
    r#""method""#,
    r#""params""#,
    r#""result""#,
    r#""error""#,
    r#""_meta""#,
    r#""task""#,
    r#""t\u0061sk""#,
    r#""ttl""#,
    r#""name""#,
    r#""content""#,
    r#""text""#,
    r#""progress""#,
    r#""progressToken""#,
    r#""io.modelcontextprotocol/related-task""#,
    r#""capabilities""#,
    r#""elicitation""#,
    r#""message""#,
    r#""code""#,
    r#""isError""#,
    r#""""#,
    r#""\"\\,{:""#,
];

/// Raw values without anything in them.
const SCALARS: [&str; 24] = [
    r#""2.0""#,
    "7",
    r#""7""#,
    "0",
    "-1",
    "1.50",
    "1e999",
    "-0",
    "123456789012345678901234567890",
    "null",
    "true",
    r#""""#,
    r#""\"}],:{[\\""#,
    r#""\ud83d\ude00 é""#,
    r#""\ud800""#,
    r#""tools/call""#,
    r#""tools/list""#,
    r#""initialize""#,
    r#""elicitation/create""#,
    r#""notifications/progress""#,
    r#""url""#,
    r#""id":7"#,
    "{}",
    "[]",
];

/// The members that make a request, a notification, a response.
const ENVELOPES: [&[&str]; 4] =
    [&["id", "method", "params"], &["method", "params"], &["id", "result"], &["id", "error"]];

/// Returns a text that is nearly always JSON, with keys and values that matter, odd white space and duplicates; often a
/// message.
pub fn made(choices: &[u8]) -> String {
    let mut choices = Unstructured::new(choices);
    let mut text = String::new();
    // Once the choices are used up, the value is the simplest.
    let _ = match choices.arbitrary() {
        Ok(true) => write_message(&mut text, &mut choices),
        _ => write_value(&mut text, &mut choices, 6),
    };
    text
}

fn write_message(text: &mut String, choices: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    text.push_str(r#"{"jsonrpc":"2.0""#);
    for member in *choices.choose(&ENVELOPES)? {
        text.push_str(",\"");
        text.push_str(member);
        text.push_str("\":");
        match *member {
            "id" => {
                text.push_str(choices.choose(&[
                    "7",
                    r#""7""#,
                    r#""\u0037""#,
                    "-1",
                    "null",
                    "1.5",
                    r#""taskgate:7""#,
                ])?);
            }
            "method" => text.push_str(choices.choose(&SCALARS)?),
            // Random members are seldom an error.
            "error" if choices.ratio(1, 2)? => text.push_str(choices.choose(&[
                r#"{"code":-1,"message":"m","data":[1]}"#,
                r#"{ "message":"\ud800","c\u006fde":1.0}"#,
                r#"{"code":1,"message":"m","message":"n"}"#,
                r#"{"code":1.5,"message":"m"}"#,
                "null",
            ])?),
            _ => write_members(text, choices, 5)?,
        }
    }
    if choices.ratio(1, 4)? {
        text.push(',');
        text.push_str(choices.choose(&KEYS)?);
        text.push(':');
        write_value(text, choices, 4)?;
    }
    text.push('}');
    Ok(())
}

fn write_value(text: &mut String, choices: &mut Unstructured<'_>, depth: usize) -> arbitrary::Result<()> {
    write_space(text, choices)?;
    match choices.int_in_range(0..=9)? {
        0..4 if depth > 0 => write_members(text, choices, depth - 1)?,
        4 if depth > 0 => {
            write_list(text, choices, '[', ']', |text, choices| write_value(text, choices, depth - 1))?;
        }
        5 => {
            // Writing to a String cannot fail.
            let _ = write!(text, "{}", choices.arbitrary::<i64>()?);
        }
        6 => text.push_str(&serde_json::Value::from(choices.arbitrary::<&str>()?).to_string()),
        _ => text.push_str(choices.choose(&SCALARS)?),
    }
    write_space(text, choices)
}

fn write_members(text: &mut String, choices: &mut Unstructured<'_>, depth: usize) -> arbitrary::Result<()> {
    write_list(text, choices, '{', '}', |text, choices| {
        write_space(text, choices)?;
        text.push_str(choices.choose(&KEYS)?);
        write_space(text, choices)?;
        text.push(':');
        write_value(text, choices, depth)
    })
}

fn write_list(
    text: &mut String,
    choices: &mut Unstructured<'_>,
    open: char,
    close: char,
    item: impl Fn(&mut String, &mut Unstructured<'_>) -> arbitrary::Result<()>,
) -> arbitrary::Result<()> {
    text.push(open);
    for at in 0..choices.int_in_range(0..=6)? {
        if at > 0 {
            text.push(',');
        }
        item(text, choices)?;
    }
    write_space(text, choices)?;
    text.push(close);
    Ok(())
}

fn write_space(text: &mut String, choices: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    text.push_str(choices.choose(&["", "", "", "", " ", "\n", "\t ", "\r\n"])?);
    Ok(())
}
