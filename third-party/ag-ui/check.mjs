// Uses CopilotKit's runtime and assistant-ui as their documentation shows; prints one line per check.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
// The version that both are built on.
import { HttpAgent } from 'ag-ui-client-0';
import { JSDOM } from 'jsdom';

process.env.COPILOTKIT_TELEMETRY_DISABLED = 'true';
const dom = new JSDOM('', { url: 'http://localhost', pretendToBeVisual: true });
for (const name of Object.getOwnPropertyNames(dom.window))
  if (!(name in globalThis)) globalThis[name] = dom.window[name];
Object.assign(globalThis, { window: dom.window, document: dom.window.document });

const { ProxiedCopilotRuntimeAgent } = await import('@copilotkit/core');
const { CopilotRuntime } = await import('@copilotkit/runtime/v2');
const { createCopilotNodeListener } = await import('@copilotkit/runtime/v2/node');
const { createElement, Fragment } = await import('react');
const { createRoot } = await import('react-dom/client');
const ui = await import('@assistant-ui/react');
const { useAgUiInterrupts, useAgUiRuntime, useAgUiSubmitInterruptResponses } = await import(
  '@assistant-ui/react-ag-ui'
);

const headers = { authorization: `Bearer ${process.env.ORACLE_KEY}` };
const url = `${process.env.ORACLE_URL}/v2/agent/run`;
const parameters = { type: 'object', properties: { city: { type: 'string' } } };
const weather = { name: 'get_weather', description: 'The weather in a city', parameters };

async function waitFor(condition) {
  const deadline = Date.now() + 60_000;
  while (!condition()) {
    assert.ok(Date.now() < deadline, `still waiting for ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Serves an agent through CopilotKit's runtime; returns its address. */
async function startRuntime() {
  const runtime = new CopilotRuntime({ agents: { oracle: new HttpAgent({ url, headers }) } });
  const listener = createCopilotNodeListener({ runtime, basePath: '/copilot' });
  const server = createServer(listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return `http://127.0.0.1:${server.address().port}/copilot`;
}

const copilotKit = {
  async text(runtimeUrl) {
    const agent = createProxy(runtimeUrl);
    await say(agent, 'Hello');
    await say(agent, 'Again');
    assert.deepEqual(
      agent.messages.map(({ content }) => content),
      ['Hello', 'You said: Hello', 'Again', 'You said: Again'],
    );
  },
  async 'tools of the client'(runtimeUrl) {
    const agent = createProxy(runtimeUrl);
    await say(agent, 'Weather in Bern?', { tools: [weather] });
    const [call] = agent.messages.at(-1).toolCalls;
    assert.deepEqual(JSON.parse(call.function.arguments), { city: 'Bern' });
    const content = '20 degrees';
    agent.addMessage({ id: crypto.randomUUID(), role: 'tool', toolCallId: call.id, content });
    await agent.runAgent({ tools: [weather] });
    assert.equal(agent.messages.at(-1).content, 'The tool said: 20 degrees');
  },
  async 'an interrupt and its denial'(runtimeUrl) {
    const agent = createProxy(runtimeUrl);
    let outcome;
    const onRunFinishedEvent = ({ event }) => {
      outcome = event.outcome;
    };
    await say(agent, 'Prefer a dry tone', {}, { onRunFinishedEvent });
    assert.equal(outcome.type, 'interrupt');
    const [{ id: interruptId }] = outcome.interrupts;
    const payload = { approved: false, reason: 'Not now' };
    await agent.runAgent({ resume: [{ interruptId, status: 'resolved', payload }] });
    assert.match(agent.messages.at(-1).content, /Not now/);
  },
  async 'a new client of the same thread'(runtimeUrl) {
    const agent = createProxy(runtimeUrl);
    await say(agent, 'Hello');
    const other = createProxy(runtimeUrl, agent.threadId);
    await other.connectAgent();
    assert.deepEqual(
      other.messages.map(({ content }) => content),
      ['Hello', 'You said: Hello'],
    );
  },
  async cancel(runtimeUrl) {
    const agent = createProxy(runtimeUrl);
    let runId;
    const onEvent = ({ event }) => {
      runId ??= event.metadata?.run?.runId ?? event.rawEvent?.runId ?? event.runId;
    };
    const running = say(agent, 'Wait', {}, { onEvent }).catch(() => 'stopped');
    await waitFor(() => runId !== undefined);
    agent.abortRun();
    await running;
  },
};

function createProxy(runtimeUrl, threadId = crypto.randomUUID()) {
  return new ProxiedCopilotRuntimeAgent({ runtimeUrl, agentId: 'oracle', threadId });
}

function say(agent, content, options, subscriber) {
  agent.addMessage({ id: crypto.randomUUID(), role: 'user', content });
  return agent.runAgent(options, subscriber);
}

/** A page of assistant-ui that shows a thread; returns what its parts do. */
async function openPage() {
  const page = {};
  const agent = new HttpAgent({ url, headers });
  const Weather = ui.makeAssistantTool({
    toolName: weather.name,
    description: weather.description,
    parameters,
    execute: async ({ city }) => `20 degrees in ${city}`,
  });
  const Message = () => createElement('div', null, createElement(ui.MessagePrimitive.Parts));
  function Thread() {
    page.interrupts = useAgUiInterrupts();
    page.submit = useAgUiSubmitInterruptResponses();
    return createElement(ui.ThreadPrimitive.Messages, { components: { Message } });
  }
  function App({ withTool }) {
    const onError = (error) => {
      page.error = error;
    };
    page.runtime = useAgUiRuntime({ agent, onError });
    const shown = createElement(Thread);
    const tool = withTool && createElement(Weather);
    const children = createElement(Fragment, null, tool, shown);
    return createElement(ui.AssistantRuntimeProvider, { runtime: page.runtime }, children);
  }
  const element = dom.window.document.createElement('div');
  dom.window.document.body.append(element);
  const root = createRoot(element);
  page.show = (withTool) => root.render(createElement(App, { withTool }));
  page.close = () => root.unmount();
  page.read = () => element.textContent;
  page.show(false);
  await waitFor(() => page.runtime !== undefined);
  return page;
}

const assistantUi = {
  async text(page) {
    page.runtime.thread.append('Hello');
    await waitFor(() => page.read().includes('You said: Hello'));
    page.runtime.thread.append('Again');
    await waitFor(() => page.read().includes('You said: Again'));
  },
  async 'tools of the client'(page) {
    page.show(true);
    await waitFor(() => page.runtime.thread.getModelContext().tools?.get_weather);
    page.runtime.thread.append('Weather in Bern?');
    await waitFor(() => page.read().includes('The tool said: 20 degrees in Bern'));
  },
  async 'an interrupt and its denial'(page) {
    page.runtime.thread.append('Prefer a dry tone');
    await waitFor(() => page.interrupts.length > 0);
    const [{ id: interruptId }] = page.interrupts;
    const payload = { approved: false, reason: 'Not now' };
    await page.submit([{ interruptId, status: 'resolved', payload }]);
    await waitFor(() => page.read().includes('Not now'));
  },
  async cancel(page) {
    page.runtime.thread.append('Wait');
    await waitFor(() => page.runtime.thread.getState().isRunning);
    page.runtime.thread.cancelRun();
    await waitFor(() => !page.runtime.thread.getState().isRunning);
  },
};

const runtimeUrl = await startRuntime();
for (const [name, check] of Object.entries(copilotKit)) {
  await check(runtimeUrl);
  console.log(`CopilotKit: ${name}`);
}
for (const [name, check] of Object.entries(assistantUi)) {
  const page = await openPage();
  await check(page).catch((error) => {
    throw new Error(`assistant-ui shows: ${page.read()}`, { cause: page.error ?? error });
  });
  page.close();
  console.log(`assistant-ui: ${name}`);
}
// Cancelled streams keep connections open.
process.exit(0);
