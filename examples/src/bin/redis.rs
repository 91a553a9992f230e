//! A server that Redis clients can talk to, in plain blocking code: a connection is a
//! goroutine, `BLPOP` is a select, a subscription is a channel. Two commands that Redis
//! has not: `BLOCK ms` blocks its thread, `SPIN ms` never yields; nobody else notices.

use heist::chan::{self, Sender, select};
use heist::io::{self, BufRead, BufReader, Read, Write};
use heist::net::TcpStream;
use heist::sync::{LazyLock, Mutex, MutexGuard};
use heist::time::{Duration, Instant, Timer};
use std::collections::{HashMap, VecDeque};

type Bytes = Vec<u8>;
type Answer<T = Bytes> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
const NO_NUMBER: &str = "ERR value is not an integer or out of range";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

#[derive(Default)]
struct Store {
    texts: HashMap<Bytes, Bytes>,
    lists: HashMap<Bytes, VecDeque<Bytes>>,
    ends: HashMap<Bytes, Instant>,
    waiting: HashMap<Bytes, VecDeque<Sender<[Bytes; 2]>>>, // for lists; first come first served
    subscribers: HashMap<Bytes, Vec<Sender<Bytes>>>,
}

fn store() -> MutexGuard<'static, Store> {
    static STORE: LazyLock<Mutex<Store>> = LazyLock::new(Mutex::default);
    STORE.lock().unwrap()
}

impl Store {
    fn has(&self, key: &[u8]) -> bool {
        self.texts.contains_key(key) || self.lists.contains_key(key)
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        self.ends.remove(key);
        self.texts.remove(key).is_some() || self.lists.remove(key).is_some()
    }

    fn set_end(&mut self, key: &[u8], end: Instant) -> bool {
        if self.has(key) {
            self.ends.insert(key.into(), end);
            let key = key.to_vec();
            let _ = Timer::at(end, move || {
                let mut store = store();
                let _ = store.ends.get(&key) == Some(&end) && store.remove(&key);
            });
        }
        self.has(key)
    }

    fn push(&mut self, key: &[u8], element: &[u8], front: bool) -> Answer<usize> {
        while let Some(first) = self.waiting.get_mut(key).and_then(VecDeque::pop_front) {
            if first.try_send([key.into(), element.into()]).is_ok() {
                return Ok(1); // if not, it has got one from another list
            }
        }
        let free = (!self.texts.contains_key(key)).then_some(());
        let list = free.map(|()| self.lists.entry(key.into()).or_default()).ok_or(WRONG_TYPE)?;
        match front {
            true => list.push_front(element.into()),
            false => list.push_back(element.into()),
        }
        Ok(list.len())
    }

    fn pop(&mut self, key: &[u8], front: bool) -> Option<Bytes> {
        let list = self.lists.get_mut(key)?;
        let element = if front { list.pop_front() } else { list.pop_back() };
        let _ = list.is_empty() && self.remove(key);
        element
    }
}

macro_rules! line {
    ($($text:tt)*) => { Ok(format!("{}\r\n", format_args!($($text)*)).into_bytes()) };
}

fn bulk(text: Option<&Bytes>) -> Bytes {
    let some = |text: &Bytes| [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat();
    text.map_or(b"$-1\r\n".to_vec(), some)
}

fn array<'a>(items: impl ExactSizeIterator<Item = &'a Bytes>) -> Answer {
    let head = format!("*{}\r\n", items.len()).into_bytes();
    Ok(head.into_iter().chain(items.flat_map(|item| bulk(Some(item)))).collect())
}

fn number<T: std::str::FromStr>(bytes: &[u8]) -> Answer<T> {
    Ok(str::from_utf8(bytes)?.trim_end().parse().map_err(|_| NO_NUMBER)?)
}

fn after(count: &[u8], unit: u64) -> Answer<Instant> {
    let millis = number::<u64>(count)?.saturating_mul(unit);
    Ok(Instant::now().checked_add(Duration::from_millis(millis)).ok_or(NO_NUMBER)?)
}

struct Client {
    stream: BufReader<TcpStream>,
    replies: Bytes,
    inbox: Option<Sender<Bytes>>, // since it subscribed, a goroutine writes to it
    channels: Vec<Bytes>,
    resp3: bool,
}

impl Client {
    fn command(&mut self) -> Answer<Vec<Bytes>> {
        let mut line = Bytes::new();
        self.stream.read_until(b'\n', &mut line)?;
        let Some(count) = line.strip_prefix(b"*") else {
            let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            return Ok(words.map(Bytes::from).collect());
        };
        let mut args = Vec::new();
        for _ in 0..number::<u32>(count)? {
            let mut line = Bytes::new();
            self.stream.read_until(b'\n', &mut line)?;
            let length = line.strip_prefix(b"$").ok_or("ERR Protocol error: expected '$'")?;
            let mut arg = Bytes::new(); // grows with what comes, not with what is promised
            self.stream.by_ref().take(number::<u32>(length)?.into()).read_to_end(&mut arg)?;
            self.stream.read_exact(&mut [0; 2])?;
            args.push(arg);
        }
        Ok(args)
    }

    fn flush(&mut self) -> Answer<()> {
        let bytes = std::mem::take(&mut self.replies);
        let Some(inbox) = &self.inbox else { return Ok(self.stream.get_ref().write_all(&bytes)?) };
        Ok(inbox.send(bytes)?)
    }

    /// Waits at several lists, the clock and the end of the connection at once.
    fn blocking_pop(&mut self, keys: &[Bytes], timeout: &[u8], front: bool) -> Answer {
        let clock = match number::<f64>(timeout)? {
            0.0 => chan::never(),
            seconds => chan::after(Duration::try_from_secs_f64(seconds)?),
        };
        let (give, take) = chan::bounded(1);
        let mut locked = store();
        for key in keys {
            if let Some(element) = locked.pop(key, front) {
                return array([key, &element].into_iter()); // nobody listens to `give`
            }
            locked.waiting.entry(key.clone()).or_default().push_back(give.clone());
        }
        drop(locked);
        self.flush()?;
        let (hang_up, hung_up) = chan::bounded(1);
        let (stream, tell) = (self.stream.get_ref().try_clone()?, hang_up.clone());
        let _ = heist::go(move || matches!(stream.peek(&mut [0]), Ok(1)) || tell.send(()).is_ok());
        let got = select! {
            recv(take) -> got => got.ok(),
            recv(clock) -> _ => None,
            recv(hung_up) -> _ => None,
        };
        let mut locked = store();
        for key in keys {
            locked.waiting.entry(key.clone()).or_default().retain(|w| !w.same_channel(&give));
        }
        // Whoever pushes has the lock: from here on nothing comes. Two lists may have had one.
        let mut got = got.into_iter().chain(take.try_recv());
        let first = got.next();
        got.for_each(|[key, second]| drop(locked.push(&key, &second, front)));
        first.map_or_else(|| line!("*-1"), |got| array(got.iter()))
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
        if on {
            all.push(inbox.clone());
            self.channels.push(channel.clone());
        }
        let what = if on { "$9\r\nsubscribe" } else { "$11\r\nunsubscribe" };
        let (head, tail) = (format!("*3\r\n{what}\r\n"), format!(":{}\r\n", self.channels.len()));
        let reply = [head.as_bytes(), &bulk(Some(channel)), tail.as_bytes()].concat();
        inbox.try_send(reply).unwrap_or_else(|full| self.replies.extend(full.into_inner()));
        Ok(())
    }

    fn run(&mut self, name: &[u8], args: &[Bytes]) -> Answer {
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
            (b"GET", [key]) if store().lists.contains_key(key) => Err(WRONG_TYPE.into()),
            (b"GET", [key]) => Ok(bulk(store().texts.get(key))),
            (b"INCR" | b"INCRBY", [key, by @ ..]) => {
                let (mut store, by) = (store(), by.first().map_or(Ok(1), |by| number(by))?);
                let text = store.texts.entry(key.clone()).or_insert(b"0".to_vec());
                let new = number::<i64>(text)?.checked_add(by).ok_or(NO_NUMBER)?;
                *text = new.to_string().into();
                line!(":{new}")
            }
            (b"EXISTS", keys) => line!(":{}", keys.iter().filter(|key| store().has(key)).count()),
            (b"DEL", keys) => line!(":{}", keys.iter().filter(|key| store().remove(key)).count()),
            (b"EXPIRE", [key, n]) => line!(":{}", store().set_end(key, after(n, 1000)?) as u8),
            (b"PEXPIRE", [key, n]) => line!(":{}", store().set_end(key, after(n, 1)?) as u8),
            (b"TTL" | b"PTTL", [key]) if !store().has(key) => line!(":-2"),
            (b"TTL" | b"PTTL", [key]) => match store().ends.get(key) {
                Some(end) if name == b"PTTL" => line!(":{}", (*end - Instant::now()).as_millis()),
                Some(end) => line!(":{:.0}", (*end - Instant::now()).as_secs_f64()),
                None => line!(":-1"),
            },
            (b"LPUSH" | b"RPUSH", [key, elements @ ..]) if !elements.is_empty() => {
                let (mut store, front) = (store(), name[0] == b'L');
                let pushed = elements.iter().map(|element| store.push(key, element, front)).last();
                line!(":{}", pushed.unwrap()?)
            }
            (b"LPOP" | b"RPOP", [key]) => Ok(bulk(store().pop(key, name[0] == b'L').as_ref())),
            (b"BLPOP" | b"BRPOP", [keys @ .., time]) => {
                self.blocking_pop(keys, time, name[1] == b'L')
            }
            (b"LLEN", [key]) => line!(":{}", store().lists.get(key).map_or(0, VecDeque::len)),
            (b"LRANGE", [key, from, to]) => {
                let store = store();
                let Some(list) = store.lists.get(key) else { return line!("*0") };
                let place = |at: i64| if at < 0 { at + list.len() as i64 } else { at };
                let to = (place(number(to)?) + 1).clamp(0, list.len() as i64) as usize;
                array(list.range((place(number(from)?).max(0) as usize).min(to)..to))
            }
            (b"SORT", [key, options @ ..]) => {
                // A copy, which is sorted while others have the store.
                let mut items = Vec::from(store().lists.get(key).cloned().unwrap_or_default());
                let asks = |name: &[u8]| options.iter().any(|o| o.eq_ignore_ascii_case(name));
                let score =
                    |i: &Bytes| if asks(b"ALPHA") { 0.0 } else { number(i).unwrap_or(0f64) };
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
            _ => Err(format!("ERR unknown command or arguments: {}", name.escape_ascii()).into()),
        }
    }
}

#[heist::main]
fn main() -> io::Result<()> {
    heist_examples::listen("127.0.0.1:6379", |stream| {
        let (stream, replies, channels) = (BufReader::new(stream), Bytes::new(), Vec::new());
        let mut client = Client { stream, replies, inbox: None, channels, resp3: false };
        while let Ok([name, args @ ..]) = client.command().as_deref() {
            let reply = client.run(&name.to_ascii_uppercase(), args);
            let reply = reply.unwrap_or_else(|e| format!("-{e}\r\n").into_bytes());
            let nil = client.resp3 && (reply == b"$-1\r\n" || reply == b"*-1\r\n");
            client.replies.extend(if nil { b"_\r\n".to_vec() } else { reply });
            // Commands that came together are answered together.
            if client.stream.buffer().is_empty() && client.flush().is_err() {
                break;
            }
        }
        let _ = client.run(b"UNSUBSCRIBE", &[]);
        Ok(())
    })
}
