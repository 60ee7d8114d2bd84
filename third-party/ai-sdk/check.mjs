// Uses the chat that `useChat` wraps, and its default transport, of two versions; prints one line per check.
import assert from 'node:assert/strict';
import * as version7 from 'ai';
import * as version6 from 'ai6';

const api = `${process.env.ORACLE_URL}/ui/chat`;
const headers = { Authorization: `Bearer ${process.env.ORACLE_KEY}` };
const tools = {
  get_weather: { description: 'The weather in a city', parameters: { type: 'object' } },
};

/** What React and other frameworks keep for `useChat`. */
class State {
  status = 'ready';
  error = undefined;
  messages = [];
  pushMessage = (message) => this.messages.push(message);
  popMessage = () => this.messages.pop();
  replaceMessage = (index, message) => this.messages.splice(index, 1, message);
  snapshot = structuredClone;
}

/** Returns a chat with this version of the package. */
function createChat(sdk, options = {}) {
  const { body, messages = [], transport: own, ...chat } = options;
  const state = Object.assign(new State(), { messages });
  class Chat extends sdk.AbstractChat {}
  const transport = new sdk.DefaultChatTransport({ api, headers, body, ...own });
  return new Chat({ state, transport, id: chat.id ?? crypto.randomUUID(), ...chat });
}

const readText = ({ parts }) =>
  parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('');
const last = (chat) => chat.messages.at(-1);
const findTool = (chat) => last(chat).parts.find(({ toolCallId }) => toolCallId !== undefined);

async function waitFor(condition) {
  const deadline = Date.now() + 60_000;
  while (!condition()) {
    assert.ok(Date.now() < deadline, `still waiting for ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const checks = {
  async 'messages, an edit and a second answer'(sdk) {
    const chat = createChat(sdk);
    await chat.sendMessage({ text: 'Hello' });
    assert.equal(chat.error, undefined);
    assert.equal(readText(last(chat)), 'You said: Hello');
    await chat.sendMessage({ text: 'Again' });
    assert.equal(readText(last(chat)), 'You said: Again');
    const [, , question] = chat.messages;
    await chat.sendMessage({ text: 'Edited', messageId: question.id });
    assert.equal(chat.messages.length, 4);
    assert.equal(readText(last(chat)), 'You said: Edited');
    await chat.regenerate();
    assert.equal(readText(last(chat)), 'You said: Edited');
  },
  async 'tools of the client'(sdk) {
    const chat = createChat(sdk, {
      body: { tools },
      sendAutomaticallyWhen: sdk.lastAssistantMessageIsCompleteWithToolCalls,
      onToolCall: ({ toolCall }) => {
        const { toolName: tool, toolCallId } = toolCall;
        void chat.addToolOutput({ tool, toolCallId, output: `20 degrees in ${toolCall.input.city}` });
      },
    });
    await chat.sendMessage({ text: 'Weather in Bern?' });
    await waitFor(() => readText(last(chat)).includes('The tool said'));
    assert.equal(readText(last(chat)), 'The tool said: 20 degrees in Bern');
    assert.equal(chat.messages.length, 2);
    assert.equal(chat.error, undefined);
  },
  async approvals(sdk) {
    const chat = createChat(sdk, {
      sendAutomaticallyWhen: sdk.lastAssistantMessageIsCompleteWithApprovalResponses,
    });
    await chat.sendMessage({ text: 'Prefer a dry tone' });
    const { state, approval } = findTool(chat);
    assert.equal(state, 'approval-requested');
    await chat.addToolApprovalResponse({ id: approval.id, approved: false, reason: 'Not now' });
    await waitFor(() => readText(last(chat)).includes('Not now'));
    assert.equal(chat.error, undefined);
  },
  async 'an approval without a signature'(sdk) {
    const chat = createChat(sdk, {
      sendAutomaticallyWhen: sdk.lastAssistantMessageIsCompleteWithApprovalResponses,
    });
    await chat.sendMessage({ text: 'Prefer a dry tone' });
    await chat.addToolApprovalResponse({ id: findTool(chat).approval.id, approved: true });
    await waitFor(() => chat.error !== undefined);
    assert.match(chat.error.message, /needs your signature: open http/);
  },
  async resume(sdk) {
    const id = crypto.randomUUID();
    const first = createChat(sdk, { id });
    void first.sendMessage({ text: 'Wait' });
    await waitFor(() => first.messages.length === 2);
    const [question] = first.messages;
    await first.stop();
    const second = createChat(sdk, { id, messages: [question] });
    const resumed = second.resumeStream();
    await waitFor(() => second.messages.length === 2);
    await fetch(`${api}/${id}/stream`, { method: 'DELETE', headers });
    await resumed;
    assert.equal(last(second).role, 'assistant');
    const third = createChat(sdk, { id, messages: [question] });
    await third.resumeStream();
    assert.deepEqual([third.messages.length, third.error], [1, undefined]);
  },
  async errors(sdk) {
    const chat = createChat(sdk, { transport: { headers: { Authorization: 'Bearer unknown' } } });
    await chat.sendMessage({ text: 'Hello' });
    assert.match(chat.error.message, /Invalid access key/);
  },
};

for (const [version, sdk] of Object.entries({ 6: version6, 7: version7 }))
  for (const [name, check] of Object.entries(checks)) {
    await check(sdk);
    console.log(`ai ${version}: ${name}`);
  }
// Stopped streams keep connections open.
process.exit(0);
