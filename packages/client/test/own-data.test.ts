import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startHost, type TestHost } from '../../host/test/support/host.js';
import { createTestClient } from './support/client.js';

let host: TestHost;
beforeAll(async () => {
  host = await startHost();
});
afterAll(() => host.close());

const encode = (text: string) => new TextEncoder().encode(text);

describe('client.files', () => {
  it('uploads, lists, gets, downloads a range and deletes', async () => {
    const client = createTestClient(host);
    const file = await client.files.upload(encode('The harvest was 42 tons.'), { name: 'a.txt' });
    expect(file).toMatchObject({ name: 'a.txt', size: 24 });
    const again = await client.files.upload(new Blob(['The harvest was 42 tons.']));
    expect(again.fileId).toBe(file.fileId);
    expect(await client.files.get(file.fileId)).toMatchObject({ fileId: file.fileId });
    const page = await client.files.list({ limit: 1 });
    expect([page.total, page.files[0]?.fileId]).toEqual([1, file.fileId]);
    const whole = await client.files.download(file.fileId);
    expect(await whole.text()).toBe('The harvest was 42 tons.');
    const part = await client.files.download(file.fileId, { start: 4, end: 11 });
    expect([part.status, await part.text()]).toEqual([206, 'harvest']);
    const other = createTestClient(host);
    await expect(other.files.get(file.fileId)).rejects.toMatchObject({ code: 'file_not_found' });
    await client.files.delete(file.fileId);
    await expect(client.files.get(file.fileId)).rejects.toMatchObject({ code: 'file_not_found' });
  });
});

describe('client.memory', () => {
  it('adds, finds, changes and forgets facts of the user', async () => {
    const client = createTestClient(host);
    const fact = await client.memory.add('I grow barley');
    await client.memory.add('I live in Kenya');
    expect((await client.memory.list({ q: 'barley' })).facts).toMatchObject([{ id: fact.id }]);
    expect(await client.memory.change(fact.id, 'I grow oats')).toMatchObject({
      text: 'I grow oats',
    });
    const page = await client.memory.list({ limit: 1 });
    expect([page.total, page.facts.length]).toEqual([2, 1]);
    expect((await createTestClient(host).memory.list()).total).toBe(0);
    await client.memory.forget(fact.id);
    expect((await client.memory.list()).facts.map(({ text }) => text)).toEqual(['I live in Kenya']);
    await expect(client.memory.forget(fact.id)).rejects.toMatchObject({ status: 404 });
  });
});

describe('client.usage', () => {
  it('counts the turns of the user, by day, model and session', async () => {
    const client = createTestClient(host);
    const { sessionId } = await client.sessions.create();
    await client.messages.send(sessionId, 'count to 3');
    const { total, days, models, sessions } = await client.usage({ days: 2 });
    expect(total).toMatchObject({ turns: 1, outputTokens: 3 });
    expect([days.length, models[0]?.model, sessions[0]?.sessionId]).toEqual([
      1,
      'offline',
      sessionId,
    ]);
    expect((await createTestClient(host).usage()).total.turns).toBe(0);
    await expect(client.usage({ days: 1000 })).rejects.toMatchObject({ status: 400 });
  });
});

describe('client.me', () => {
  it('exports everything, erases it with a signature, and imports it again', async () => {
    const client = createTestClient(host);
    const { sessionId } = await client.sessions.create({ title: 'Harvest' });
    await client.messages.send(sessionId, 'count to 3');
    await client.memory.add('I grow barley');
    const response = await client.me.export();
    expect(response.headers.get('content-type')).toContain('zip');
    const archive = await response.blob();
    const erased = await client.me.erase();
    expect(erased.rows).toBeGreaterThan(0);
    expect((await client.sessions.list()).total).toBe(0);
    expect((await client.memory.list()).total).toBe(0);
    let job = await client.me.import(archive);
    await expect
      .poll(async () => {
        job = await client.me.findImport(job.id);
        return job.status;
      })
      .not.toBe('running');
    expect(job).toMatchObject({ refused: 0 });
    expect(await client.messages.list(sessionId)).toHaveLength(2);
    expect((await client.memory.list()).facts[0]?.text).toBe('I grow barley');
    const other = createTestClient(host);
    await expect(other.me.findImport(job.id)).rejects.toMatchObject({ status: 404 });
  });

  it('import reports an archive that is none', async () => {
    const client = createTestClient(host);
    const outcome = client.me.import(new Blob(['not an archive'])).then(
      async (started) => {
        let job = started;
        while (job.status === 'running') job = await client.me.findImport(job.id);
        return job.status;
      },
      ({ status }) => status,
    );
    expect([400, 'failed']).toContain(await outcome);
  });
});
