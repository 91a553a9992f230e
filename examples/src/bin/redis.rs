//! A server that Redis clients can talk to, in plain blocking code: a connection is a
//! goroutine, `BLPOP` is a select, a subscription is a channel. Two commands that Redis
//! has not: `BLOCK ms` blocks its thread, `SPIN ms` never yields; nobody else notices.

use heist::chan::{self, Select, Sender};
use heist::io::{self, BufRead, BufReader, Read, Write};
use heist::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use heist::time::{Duration, Instant, Timer};
use std::collections::{HashMap, VecDeque};

type Bytes = Vec<u8>;
type Waiter = (Sender<[Bytes; 2]>, bool); // pops from the front
type Answer<T = Bytes> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
const NO_NUMBER: &str = "ERR value is not an integer or out of range";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const MOST: usize = 64 << 10; // in a line that comes, and in replies that wait
macro_rules! line {
    ($($text:tt)*) => { Ok(format!("{}\r\n", format_args!($($text)*)).into_bytes()) };
}

#[derive(Default)]
struct Store {
    texts: HashMap<Bytes, Bytes>,
    lists: HashMap<Bytes, VecDeque<Bytes>>, // none is empty
    ends: HashMap<Bytes, Instant>,
    waiting: HashMap<Bytes, VecDeque<Waiter>>, // for lists; first come first served
    subscribers: HashMap<Bytes, Vec<Sender<Bytes>>>,
}

fn store() -> MutexGuard<'static, Store> {
    static STORE: LazyLock<Mutex<Store>> = LazyLock::new(Mutex::default);
    STORE.lock().unwrap_or_else(PoisonError::into_inner) // a panic is its connection's only
}

impl Store {
    fn has(&self, key: &[u8]) -> bool {
        self.texts.contains_key(key) || self.lists.contains_key(key)
    }
    fn text(&self, key: &[u8]) -> Answer<Option<&Bytes>> {
        if self.lists.contains_key(key) { Err(WRONG_TYPE)? } else { Ok(self.texts.get(key)) }
    }
    fn list(&mut self, key: &[u8]) -> Answer<Option<&mut VecDeque<Bytes>>> {
        if self.texts.contains_key(key) { Err(WRONG_TYPE)? } else { Ok(self.lists.get_mut(key)) }
    }
    fn remove(&mut self, key: &[u8]) -> bool {
        self.ends.remove(key);
        self.texts.remove(key).is_some() || self.lists.remove(key).is_some()
    }
    fn set_end(&mut self, key: &[u8], end: Instant) -> Answer {
        if !self.has(key) || end <= Instant::now() {
            return line!(":{}", self.remove(key) as u8);
        }
        let key = key.to_vec();
        self.ends.insert(key.clone(), end);
        let _ = Timer::at(end, move || {
            let mut store = store();
            let _ = store.ends.get(&key) == Some(&end) && store.remove(&key);
        });
        line!(":1")
    }

    /// Pushes all, and then serves those who wait. One that is full has got another list's.
    fn push(&mut self, key: &[u8], elements: &[Bytes], front: bool) -> Answer {
        self.list(key)?;
        let list = self.lists.entry(key.into()).or_default();
        let put = if front { VecDeque::push_front } else { VecDeque::push_back };
        elements.iter().for_each(|element| put(list, element.clone()));
        let length = list.len();
        while self.lists.contains_key(key)
            && let Some((w, front)) = self.waiting.get_mut(key).and_then(VecDeque::pop_front)
        {
            let _ = w.is_full() || w.try_send([key.into(), self.pop(key, front)?.unwrap()]).is_ok();
        }
        line!(":{length}")
    }

    fn pop(&mut self, key: &[u8], front: bool) -> Answer<Option<Bytes>> {
        let Some(list) = self.list(key)? else { return Ok(None) };
        let element = if front { list.pop_front() } else { list.pop_back() };
        let _ = list.is_empty() && self.remove(key);
        Ok(element)
    }
}

fn bulk(text: Option<&Bytes>) -> Bytes {
    let some = |text: &Bytes| [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat();
    text.map_or(b"$-1\r\n".to_vec(), some)
}
fn array<'a>(items: impl ExactSizeIterator<Item = &'a Bytes>) -> Answer {
    let head = format!("*{}\r\n", items.len()).into_bytes();
    Ok(head.into_iter().chain(items.flat_map(|item| bulk(Some(item)))).collect())
}
fn number<T: std::str::FromStr>(bytes: impl AsRef<[u8]>) -> Answer<T> {
    Ok(str::from_utf8(bytes.as_ref())?.trim_end().parse().map_err(|_| NO_NUMBER)?)
}
fn after(count: &[u8], unit: i64) -> Answer<Instant> {
    let millis = number::<i64>(count)?.saturating_mul(unit).max(0) as u64;
    Ok(Instant::now().checked_add(Duration::from_millis(millis)).ok_or(NO_NUMBER)?)
}

struct Client {
    stream: BufReader<heist::net::TcpStream>,
    replies: Bytes,
    inbox: Option<Sender<Bytes>>, // since it subscribed, a goroutine writes to it
    channels: Vec<Bytes>,
    resp3: bool,
}

impl Client {
    fn line(&mut self) -> Answer {
        let mut line = Bytes::new();
        self.stream.by_ref().take(MOST as u64).read_until(b'\n', &mut line)?;
        match line.last() {
            Some(b'\n') => Ok(line),
            _ if line.len() == MOST => Err("ERR Protocol error: too big inline request")?,
            _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof))?,
        }
    }
    fn command(&mut self) -> Answer<Vec<Bytes>> {
        let line = self.line()?;
        let Some(count) = line.strip_prefix(b"*") else {
            let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            return Ok(words.map(Bytes::from).collect());
        };
        let argument = |_| {
            let line = self.line()?;
            let length = line.strip_prefix(b"$").ok_or("ERR Protocol error: expected '$'")?;
            let mut arg = Bytes::new(); // grows with what comes, not with what is promised
            self.stream.by_ref().take(number::<u32>(length)?.into()).read_to_end(&mut arg)?;
            self.stream.read_exact(&mut [0; 2])?;
            Ok(arg)
        };
        (0..number::<i32>(count)?).map(argument).collect()
    }
    fn flush(&mut self) -> Answer<()> {
        let bytes = std::mem::take(&mut self.replies);
        let Some(inbox) = &self.inbox else { return Ok(self.stream.get_ref().write_all(&bytes)?) };
        Ok(inbox.send(bytes)?)
    }

    /// Waits at several lists, the clock and the end of the connection at once.
    fn blocking_pop(&mut self, keys: &[Bytes], timeout: &[u8], front: bool) -> Answer {
        let time = Duration::try_from_secs_f64(number(timeout)?)?;
        let clock = if time.is_zero() { chan::never() } else { chan::after(time) };
        let ((give, take), mut locked) = (chan::bounded(1), store());
        let first = keys.iter().find_map(|key| Some((key, locked.pop(key, front).transpose()?)));
        if let Some((key, element)) = first {
            return array([key, &element?].into_iter());
        }
        for key in keys {
            locked.waiting.entry(key.clone()).or_default().push_back((give.clone(), front));
        }
        drop(locked);
        let _ = self.flush(); // one that is gone is found to be, below
        let (stream, (hang_up, hung_up)) = (self.stream.get_ref(), chan::bounded(1));
        heist::thread::scope(|scope| {
            scope.spawn(|| matches!(stream.peek(&mut [0]), Ok(1)) || hang_up.send(()).is_ok());
            let mut any = Select::new();
            let _ = (any.recv(&take), any.recv(&clock), any.recv(&hung_up));
            any.ready(); // and takes nothing: until it has the lock, it counts as served
            stream.set_read_deadline(Some(Instant::now())); // ends the peek
        });
        stream.set_read_deadline(None);
        let mut locked = store();
        for key in keys {
            locked.waiting.entry(key.clone()).or_default().retain(|w| !w.0.same_channel(&give));
        }
        take.try_recv().map_or_else(|_| line!("*-1"), |got| array(got.iter()))
    }

    fn subscribe(&mut self, channel: &Bytes, on: bool) -> Answer<()> {
        let _ = self.flush(); // one that is gone leaves its channels all the same
        if self.inbox.is_none() {
            let mut stream = self.stream.get_ref().try_clone()?;
            let (sender, messages) = chan::bounded::<Bytes>(1024); // who is slower misses some
            let _ = heist::go(move || messages.iter().try_for_each(|b| stream.write_all(&b)));
            self.inbox = Some(sender);
        }
        let (mut locked, inbox) = (store(), self.inbox.clone().unwrap()); // until it has replied
        let all = locked.subscribers.entry(channel.clone()).or_default();
        all.retain(|other| !other.same_channel(&inbox));
        self.channels.retain(|other| other != channel);
        all.extend(on.then(|| inbox.clone()));
        self.channels.extend(on.then(|| channel.clone()));
        let what = if on { "$9\r\nsubscribe" } else { "$11\r\nunsubscribe" };
        let (head, tail) = (format!("*3\r\n{what}\r\n"), format!(":{}\r\n", self.channels.len()));
        let reply = [head.as_bytes(), &bulk(Some(channel)), tail.as_bytes()].concat();
        inbox.try_send(reply).unwrap_or_else(|full| self.replies.extend(full.into_inner()));
        Ok(())
    }

    fn run(&mut self, name: &[u8], args: &[Bytes]) -> Answer {
        let (left, unit) = (name.contains(&b'L'), if name.starts_with(b"P") { 1 } else { 1000 });
        match (name, args) {
            (b"PING", []) => line!("+PONG"),
            (b"PING" | b"ECHO", [text]) => Ok(bulk(Some(text))),
            (b"SELECT" | b"CLIENT", _) => line!("+OK"),
            (b"COMMAND" | b"CONFIG", _) => line!("*0"),
            (b"HELLO", [version, ..]) => {
                self.resp3 = version == b"3";
                line!("%1\r\n$5\r\nproto\r\n:{}", number::<u8>(version)?)
            }
            (b"SET", [key, text, options @ ..]) => {
                let end = match options {
                    [] => None,
                    [unit, n] if unit.eq_ignore_ascii_case(b"EX") => Some(after(n, 1000)?),
                    [unit, n] if unit.eq_ignore_ascii_case(b"PX") => Some(after(n, 1)?),
                    _ => return Err("ERR syntax error".into()),
                };
                let mut store = store();
                store.remove(key);
                store.texts.insert(key.clone(), text.clone());
                end.map(|end| store.set_end(key, end));
                line!("+OK")
            }
            (b"GET", [key]) => Ok(bulk(store().text(key)?)),
            (b"INCR" | b"INCRBY", [key, by @ ..]) => {
                let (mut store, by) = (store(), by.first().map_or(Ok(1), |by| number(by))?);
                let new =
                    store.text(key)?.map_or(Ok(0i64), number)?.checked_add(by).ok_or(NO_NUMBER)?;
                store.texts.insert(key.clone(), new.to_string().into());
                line!(":{new}")
            }
            (b"EXISTS", keys) => line!(":{}", keys.iter().filter(|key| store().has(key)).count()),
            (b"DEL", keys) => line!(":{}", keys.iter().filter(|key| store().remove(key)).count()),
            (b"EXPIRE" | b"PEXPIRE", [key, n]) => store().set_end(key, after(n, unit)?),
            (b"TTL" | b"PTTL", [key]) if !store().has(key) => line!(":-2"),
            (b"TTL" | b"PTTL", [key]) => match store().ends.get(key) {
                Some(end) => {
                    line!(":{:.0}", (*end - Instant::now()).as_secs_f64() * 1e3 / unit as f64)
                }
                None => line!(":-1"),
            },
            (b"LPUSH" | b"RPUSH", [key, _, ..]) => store().push(key, &args[1..], left),
            (b"LPOP" | b"RPOP", [key]) => Ok(bulk(store().pop(key, left)?.as_ref())),
            (b"BLPOP" | b"BRPOP", [keys @ .., time]) => self.blocking_pop(keys, time, left),
            (b"LLEN", [key]) => line!(":{}", store().list(key)?.map_or(0, |list| list.len())),
            (b"LRANGE", [key, from, to]) => {
                let mut store = store();
                let Some(list) = store.list(key)? else { return line!("*0") };
                let length = list.len() as i64;
                let place = |at: i64| if at < 0 { at.saturating_add(length) } else { at };
                let to = place(number(to)?).saturating_add(1).clamp(0, length) as usize;
                array(list.range((place(number(from)?).max(0) as usize).min(to)..to))
            }
            (b"SORT", [key, options @ ..]) => {
                // A copy, which is sorted while others have the store.
                let mut items = Vec::from(store().list(key)?.cloned().unwrap_or_default());
                let asks = |name: &[u8]| options.iter().any(|o| o.eq_ignore_ascii_case(name));
                let score = |i: &[u8]| if asks(b"ALPHA") { 0.0 } else { number(i).unwrap_or(0f64) };
                items.sort_by(|a, b| score(a).total_cmp(&score(b)).then_with(|| a.cmp(b)));
                if asks(b"DESC") { array(items.iter().rev()) } else { array(items.iter()) }
            }
            (b"PUBLISH", [channel, text]) => {
                let message = array([&b"message".to_vec(), channel, text].into_iter())?;
                let store = store();
                let all = store.subscribers.get(channel).into_iter().flatten();
                line!(":{}", all.filter(|to| to.try_send(message.clone()).is_ok()).count())
            }
            (b"SUBSCRIBE" | b"UNSUBSCRIBE", channels) => {
                let all = if channels.is_empty() { self.channels.clone() } else { channels.into() };
                all.iter().try_for_each(|channel| self.subscribe(channel, name[0] == b'S'))?;
                Ok(Bytes::new()) // it has replied for each
            }
            (b"BLOCK" | b"SPIN", [ms]) => {
                let (end, blocks) = (after(ms, 1)?, u32::from(name == b"BLOCK"));
                std::thread::sleep(blocks * (end - Instant::now()));
                while Instant::now() < end {}
                line!("+OK")
            }
            _ => Err(format!("ERR unknown command or arguments: {}", name.escape_ascii()))?,
        }
    }

    fn serve(&mut self) -> Answer<()> {
        loop {
            if self.stream.buffer().is_empty() || self.replies.len() > MOST {
                self.flush()?; // at once for all commands that came together
            }
            let command = self.command()?;
            let [name, args @ ..] = &command[..] else { continue };
            let reply = self.run(&name.to_ascii_uppercase(), args);
            let reply = reply.unwrap_or_else(|e| format!("-{e}\r\n").into_bytes());
            let nil = self.resp3 && (reply == b"$-1\r\n" || reply == b"*-1\r\n");
            self.replies.extend(if nil { b"_\r\n".to_vec() } else { reply });
        }
    }
}

#[heist::main]
fn main() -> io::Result<()> {
    heist_examples::listen("127.0.0.1:6379", |stream| {
        let (stream, replies, channels) = (BufReader::new(stream), Bytes::new(), Vec::new());
        let mut client = Client { stream, replies, inbox: None, channels, resp3: false };
        let error = client.serve().unwrap_err();
        let _ = error.is::<io::Error>() || write!(client.replies, "-{error}\r\n").is_ok();
        let _ = client.run(b"UNSUBSCRIBE", &[]);
        client.flush().map_err(io::Error::other)
    })
}
