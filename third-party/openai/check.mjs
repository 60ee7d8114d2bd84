// Uses the published client for Node as its documentation shows; prints one line per check.
import assert from 'node:assert/strict';
import OpenAI from 'openai';

const client = new OpenAI({ maxRetries: 0 });
const model = 'default';
const messages = [{ role: 'user', content: 'Hello' }];
const image =
  'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const parameters = { type: 'object', properties: { city: { type: 'string' } } };
const tool = { name: 'get_weather', description: 'The weather in a city', parameters };

const checks = {
  async models() {
    const ids = [];
    for await (const { id } of client.models.list()) ids.push(id);
    assert.ok(ids.includes('default'));
  },
  async chat() {
    const { choices, usage } = await client.chat.completions.create({ model, messages });
    assert.equal(choices[0].message.content, 'You said: Hello');
    assert.ok(usage.total_tokens > 0);
  },
  async 'chat, streaming'() {
    const stream = client.chat.completions.stream({
      model,
      messages,
      stream_options: { include_usage: true },
    });
    const final = await stream.finalChatCompletion();
    assert.equal(final.choices[0].message.content, 'You said: Hello');
    assert.ok(final.usage.total_tokens > 0);
  },
  async 'chat, images'() {
    const text = { type: 'text', text: 'Hello' };
    const content = [text, { type: 'image_url', image_url: { url: image } }];
    const { choices } = await client.chat.completions.create({
      model,
      messages: [{ role: 'user', content }],
    });
    assert.ok(choices[0].message.content.startsWith('You said: Hello'));
    const parts = [
      { type: 'input_text', text: 'Hello' },
      { type: 'input_image', image_url: image, detail: 'auto' },
    ];
    const input = [{ role: 'user', content: parts }];
    const { output_text } = await client.responses.create({ model, input });
    assert.ok(output_text.startsWith('You said: Hello'));
  },
  async 'chat, tools'() {
    const runner = client.chat.completions.runTools({
      model,
      messages: [{ role: 'user', content: 'Weather in Bern?' }],
      tools: [
        {
          type: 'function',
          function: { ...tool, parse: JSON.parse, function: ({ city }) => `20 degrees in ${city}` },
        },
      ],
    });
    assert.equal(await runner.finalContent(), 'The tool said: 20 degrees in Bern');
  },
  async 'chat, a required tool'() {
    const named = { type: 'function', function: { name: 'find_place' } };
    const place = { type: 'function', function: { name: 'find_place', parameters } };
    for (const tool_choice of ['required', named]) {
      const asked = { model, messages, tools: [place], tool_choice };
      const { choices } = await client.chat.completions.create(asked);
      assert.equal(choices[0].message.tool_calls[0].function.name, 'find_place');
    }
  },
  async 'chat, errors'() {
    const unknown = client.chat.completions.create({ model: 'no-such', messages });
    await assert.rejects(unknown, OpenAI.NotFoundError);
    const stranger = new OpenAI({ apiKey: 'sk-unknown', maxRetries: 0 });
    await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
  },
  async responses() {
    const first = await client.responses.create({ model, input: 'Hello' });
    assert.equal(first.output_text, 'You said: Hello');
    const next = { model, input: 'Again', previous_response_id: first.id };
    assert.equal((await client.responses.create(next)).output_text, 'You said: Again');
    assert.equal((await client.responses.retrieve(first.id)).output_text, 'You said: Hello');
    await client.responses.delete(first.id);
    await assert.rejects(client.responses.retrieve(first.id), OpenAI.NotFoundError);
  },
  async 'responses, streaming'() {
    const stream = client.responses.stream({ model, input: 'Hello' });
    assert.equal((await stream.finalResponse()).output_text, 'You said: Hello');
  },
  async 'responses, reasoning'() {
    const asked = { model, input: 'Think' };
    const whole = await client.responses.create(asked);
    const stream = client.responses.stream(asked);
    let thought = '';
    stream.on('response.reasoning_summary_text.delta', ({ delta }) => (thought += delta));
    for (const { output, output_text } of [whole, await stream.finalResponse()]) {
      assert.deepEqual(output[0].summary, [{ type: 'summary_text', text: 'Hm.' }]);
      assert.equal(output_text, 'You said: Think');
    }
    assert.equal(thought, 'Hm.');
    const input = [{ role: 'user', content: 'Think' }, ...whole.output];
    const next = { model, input: [...input, { role: 'user', content: 'Again' }] };
    assert.equal((await client.responses.create(next)).output_text, 'You said: Again');
  },
  async 'responses, functions'() {
    const tools = [{ type: 'function', strict: false, ...tool }];
    const asked = await client.responses.create({ model, input: 'Weather in Bern?', tools });
    const [call] = asked.output.filter(({ type }) => type === 'function_call');
    assert.deepEqual(JSON.parse(call.arguments), { city: 'Bern' });
    const output = { type: 'function_call_output', call_id: call.call_id, output: '20 degrees' };
    const next = { model, input: [output], previous_response_id: asked.id, tools };
    const answered = await client.responses.create(next);
    assert.equal(answered.output_text, 'The tool said: 20 degrees');
  },
  async 'responses, background and cancel'() {
    let response = await client.responses.create({ model, input: 'Hello', background: true });
    while (['queued', 'in_progress'].includes(response.status)) {
      await new Promise((resolve) => setTimeout(resolve, 100));
      response = await client.responses.retrieve(response.id);
    }
    assert.equal(response.output_text, 'You said: Hello');
    const slow = await client.responses.create({ model, input: 'Wait', background: true });
    assert.equal((await client.responses.cancel(slow.id)).status, 'cancelled');
  },
};

for (const [name, check] of Object.entries(checks)) {
  await check();
  console.log(`openai for Node: ${name}`);
}
