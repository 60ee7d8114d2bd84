// Firefox by WebDriver BiDi and WebKit by WebDriver, behind one small interface.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { findFreePort } from '../../packages/host/test/support/free-port.ts';

/** A tab of a browser. What is looked for is the visible element that matches a selector and has the text or name. */
export interface Tab {
  open(url: string): Promise<void>;
  /** The value of an expression in the page, which may be a promise. */
  evaluate<T>(expression: string): Promise<T>;
  /** Clicks with the pointer, as soon as the element is there. */
  click(selector: string, text?: string): Promise<void>;
  /** Types with the keyboard. */
  type(text: string): Promise<void>;
  waitFor(selector: string, text?: string): Promise<void>;
  /** Waits until an expression is true. */
  waitUntil(expression: string): Promise<void>;
  /** Chooses a file in an input. */
  choose(selector: string, path: string): Promise<void>;
  resize(width: number, height: number): Promise<void>;
}

/** A browser with a new profile. */
export interface Browser {
  readonly name: string;
  /** Errors in the consoles of all tabs until now. */
  readErrors(): Promise<readonly string[]>;
  newTab(): Promise<Tab>;
  close(): Promise<void>;
}

/** Characters that mean keys. */
export const KEYS = { enter: '\uE007' };

/** What the protocols do differently; actions of pointer and keyboard are the same. */
interface Protocol extends Pick<Tab, 'open' | 'evaluate' | 'choose' | 'resize'> {
  perform(actions: readonly object[]): Promise<unknown>;
}

const TIMEOUT_MS = 30_000;

function createTab(protocol: Protocol): Tab {
  const { evaluate, perform } = protocol;
  const waitUntil = async (expression: string) => {
    for (const deadline = Date.now() + TIMEOUT_MS; ; await delay(50)) {
      // A page that is being loaded cannot answer.
      if (await evaluate(`Boolean(${expression})`).catch(() => false)) return;
      if (Date.now() < deadline) continue;
      const shown = await evaluate('document.body.innerText').catch(String);
      throw new Error(
        `Not within ${TIMEOUT_MS / 1000} s: ${expression}\nThe page shows:\n${shown}`,
      );
    }
  };
  return {
    ...protocol,
    waitUntil,
    waitFor: (selector, text) => waitUntil(find(selector, text)),
    async click(selector, text) {
      const element = find(selector, text);
      await waitUntil(`${element}?.matches(':not(:disabled)')`);
      const [x, y] = await evaluate<[number, number]>(`(() => {
        const element = ${element};
        element.scrollIntoView({ block: 'nearest', behavior: 'instant' });
        const { left, top, width, height } = element.getBoundingClientRect();
        return [Math.round(left + width / 2), Math.round(top + height / 2)];
      })()`);
      const press = ['pointerDown', 'pointerUp'].map((type) => ({ type, button: 0 }));
      const actions = [{ type: 'pointerMove', x, y }, ...press];
      await perform([{ type: 'pointer', id: 'mouse', actions }]);
    },
    async type(text) {
      const press = (value: string) => ['keyDown', 'keyUp'].map((type) => ({ type, value }));
      await perform([{ type: 'key', id: 'keyboard', actions: [...text].flatMap(press) }]);
    },
  };
}

/** An expression for the first visible element with the text or name. */
export const find = (selector: string, text = '') =>
  `[...document.querySelectorAll(${JSON.stringify(selector)})].find((each) => each.checkVisibility() &&
    [each.textContent, each.ariaLabel ?? ''].some((own) => own.includes(${JSON.stringify(text)})))`;

interface LaunchOptions {
  /** Of the profile. */
  readonly folder: string;
  /** Refuses to store anything for a site, as a user can set it. */
  readonly blocksStorage?: boolean;
}

export const findFirefox = (): string | undefined =>
  ['/usr/bin/firefox-esr', '/usr/bin/firefox'].find((path) => existsSync(path));

/** Starts Firefox without windows. */
export async function startFirefox({ folder, blocksStorage }: LaunchOptions): Promise<Browser> {
  const profile = join(folder, `firefox-${blocksStorage ? 'blocked' : 'profile'}`);
  mkdirSync(profile);
  const setting = 'user_pref("network.cookie.cookieBehavior", 2);';
  writeFileSync(join(profile, 'user.js'), blocksStorage ? setting : '');
  const port = await findFreePort();
  const args = ['--headless', '--profile', profile, `--remote-debugging-port=${port}`];
  const child = launch(findFirefox() ?? '', args);
  const socket = await repeat(() => connect(`ws://127.0.0.1:${port}/session`));
  const errors: string[] = [];
  const send = createSender(socket, errors);
  await send('session.new', { capabilities: {} });
  await send('session.subscribe', { events: ['log.entryAdded'] });
  return {
    name: 'Firefox',
    readErrors: async () => errors,
    newTab: async () => {
      const { context } = await send('browsingContext.create', { type: 'tab' });
      return createTab(createBidi(send, context));
    },
    close: async () => {
      await send('browser.close', {}).catch(() => undefined);
      await end(child);
    },
  };
}

// biome-ignore lint/suspicious/noExplicitAny: the protocol defines what a reply contains.
type Send = (method: string, params: object) => Promise<any>;

function createBidi(send: Send, context: string): Protocol {
  const evaluate = async (value: string) => {
    const expression = `Promise.resolve(${value}).then((result) => JSON.stringify(result))`;
    const params = { expression, target: { context }, awaitPromise: true };
    const reply = await send('script.evaluate', params);
    if (reply.type === 'exception') throw new Error(reply.exceptionDetails.text);
    return reply.result.value && JSON.parse(reply.result.value);
  };
  return {
    evaluate,
    open: (url) => send('browsingContext.navigate', { context, url, wait: 'complete' }),
    perform: (actions) => send('input.performActions', { context, actions }),
    choose: async (selector, path) => {
      const locator = { type: 'css', value: selector };
      const { nodes } = await send('browsingContext.locateNodes', { context, locator });
      await send('input.setFiles', { context, element: nodes[0], files: [path] });
    },
    resize: (width, height) =>
      send('browsingContext.setViewport', { context, viewport: { width, height } }),
  };
}

const connect = (url: string): Promise<WebSocket> =>
  new Promise((resolve, reject) => {
    const socket = new WebSocket(url);
    socket.onopen = () => resolve(socket);
    socket.onerror = () => reject(new Error('Firefox did not start'));
  });

/** Calls a function until it succeeds; throws its last error. */
async function repeat<T>(call: () => Promise<T>): Promise<T> {
  for (const deadline = Date.now() + TIMEOUT_MS; Date.now() < deadline; await delay(100)) {
    const [result] = await Promise.allSettled([call()]);
    if (result.status === 'fulfilled') return result.value;
  }
  return call();
}

function createSender(socket: WebSocket, errors: string[]): Send {
  const waiting = new Map<number, PromiseWithResolvers<unknown>>();
  socket.onmessage = ({ data }) => {
    const { id, type, result, message, params } = JSON.parse(data);
    if (type === 'event' && params.level === 'error') errors.push(params.text);
    if (type === 'success') waiting.get(id)?.resolve(result);
    if (type === 'error') waiting.get(id)?.reject(new Error(message));
  };
  socket.onclose = () => {
    for (const { reject } of waiting.values()) reject(new Error('Firefox has ended'));
  };
  return (method, params) => {
    const [id, reply] = [waiting.size, Promise.withResolvers<unknown>()];
    waiting.set(id, reply);
    socket.send(JSON.stringify({ id, method, params }));
    return reply.promise;
  };
}

const MINI_BROWSER = '/usr/lib/x86_64-linux-gnu/webkit2gtk-4.1/MiniBrowser';
export const hasWebKit = (): boolean =>
  ['/usr/bin/WebKitWebDriver', '/usr/bin/Xvfb', MINI_BROWSER].every((path) => existsSync(path));

/** Starts the small browser of WebKitGTK on a separate display. */
export async function startWebKit({ folder }: LaunchOptions): Promise<Browser> {
  const { screen, display } = await startDisplay();
  const port = await findFreePort();
  const env = { ...process.env, DISPLAY: display, XDG_DATA_HOME: folder, LC_ALL: 'C.UTF-8' };
  const driver = launch('/usr/bin/WebKitWebDriver', [`--port=${port}`], env);
  // biome-ignore lint/suspicious/noExplicitAny: the protocol defines what a reply contains.
  const call = async (method: string, path: string, body?: object): Promise<any> => {
    const init = { method, ...(body && { body: JSON.stringify(body) }) };
    const reply = await fetch(`http://127.0.0.1:${port}${path}`, init);
    const { value } = (await reply.json()) as { value: { message?: string } };
    if (!reply.ok) throw new Error(`${path}: ${value.message}`);
    return value;
  };
  await repeat(() => call('GET', '/status'));
  const program = { binary: MINI_BROWSER, args: ['--automation'] };
  const options = { 'webkitgtk:browserOptions': program };
  const { sessionId } = await call('POST', '/session', { capabilities: { alwaysMatch: options } });
  const send: Send = (path, body) => call('POST', `/session/${sessionId}${path}`, body);
  const errors: string[] = [];
  const tabs: WebKitTab[] = [];
  return {
    name: 'WebKit',
    readErrors: async () => {
      for (const { collect } of tabs) await collect();
      return errors;
    },
    newTab: async () => {
      // A tab behind another one does not receive events, so each has a window.
      const { handle } = tabs[0]
        ? await send('/window/new', { type: 'window' })
        : { handle: await call('GET', `/session/${sessionId}/window`) };
      const tab = createWebDriver(send, handle, errors);
      tabs.push(tab);
      return createTab(tab);
    },
    close: async () => {
      await call('DELETE', `/session/${sessionId}`).catch(() => undefined);
      await end(driver);
      await end(screen);
    },
  };
}

interface WebKitTab extends Protocol {
  /** Fetches the errors of the page; the driver does not report them. */
  collect(): Promise<void>;
}

// WebKit reports a resize that causes another one, which is harmless; Firefox does not.
const LISTEN = `(() => {
  window.seen = [];
  const { error } = console;
  console.error = (...args) => (window.seen.push(args.join(' ')), error(...args));
  addEventListener('error', ({ message }) =>
    /^ResizeObserver loop/.test(message) || window.seen.push(message));
  addEventListener('unhandledrejection', ({ reason }) => window.seen.push(String(reason)));
  addEventListener('securitypolicyviolation', (violation) =>
    window.seen.push([violation.violatedDirective, violation.blockedURI, violation.sample].join(' ')));
})()`;

function createWebDriver(send: Send, handle: string, errors: string[]): WebKitTab {
  const inTab: Send = (path, body) => send('/window', { handle }).then(() => send(path, body));
  const evaluate = async (expression: string) => {
    const script = `const done = arguments[0]; Promise.resolve().then(() => (${expression}))
      .then((value) => done({ value }), (error) => done({ error: String(error) }))`;
    const { value, error } = await inTab('/execute/async', { script, args: [] });
    if (error) throw new Error(error);
    return value;
  };
  let isOpen = false;
  // An empty tab does not answer.
  const collect = async () =>
    void (isOpen && errors.push(...(await evaluate('window.seen?.splice(0) ?? []'))));
  return {
    evaluate,
    collect,
    open: async (url) => {
      await collect();
      await inTab('/url', { url });
      isOpen = true;
      await evaluate(LISTEN);
    },
    perform: (actions) => inTab('/actions', { actions }),
    choose: async (selector, path) => {
      const found = await inTab('/element', { using: 'css selector', value: selector });
      await inTab(`/element/${Object.values(found)[0]}/value`, { text: path });
    },
    resize: (width, height) => inTab('/window/rect', { width, height }),
  };
}

async function startDisplay() {
  const args = ['-displayfd', '1', '-screen', '0', '1280x900x24', '-nolisten', 'tcp'];
  const screen = launch('/usr/bin/Xvfb', args);
  const [number] = await once(screen.stdout, 'data');
  return { screen, display: `:${String(number).trim()}` };
}

function launch(command: string, args: readonly string[], env = process.env) {
  const child = spawn(command, args, { env, stdio: ['ignore', 'pipe', 'ignore'] });
  child.stdout.resume();
  // Also if the check fails before it ends the child.
  process.once('exit', () => child.kill());
  return child;
}

async function end(child: ChildProcess): Promise<void> {
  const isRunning = child.exitCode === null && child.signalCode === null;
  if (isRunning && child.kill()) await once(child, 'close');
}
