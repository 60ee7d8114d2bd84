import { compileErrors, validate } from '@readme/openapi-parser';
import { describe, expect, it } from 'vitest';
import { readCompiledProtos } from '../../../demo-chain/src/chain-schema.js';
import { descriptorSet } from '../../test/schema/descriptor-set.js';
import type { Facts } from '../../test/schema/facts.js';
import { misfit, resolve } from '../../test/schema/fits-schema.js';
import { RandomSource } from '../../test/schema/random/random-source.js';
import { RandomWire } from '../../test/schema/random/random-wire.js';
import { SHAPES } from '../../test/schema/random/shapes.js';
import { REQUEST_FACTS } from '../../test/schema/request-facts.js';
import { buildOpenApi, loadSchema } from '../schema/schema.js';

interface Operation {
  readonly operationId: string;
  readonly parameters: readonly {
    readonly name?: string;
    readonly in?: string;
    readonly schema?: unknown;
  }[];
  readonly responses: Readonly<Record<string, { readonly content: Content }>>;
  readonly requestBody?: { readonly content: Content };
}
type Content = Readonly<Record<string, { readonly schema: Record<string, unknown> }>>;
type Paths = Record<string, Record<string, Operation>>;

const INFO = { title: 'A chain', version: '1' };

const demo = loadSchema(readCompiledProtos(), { prefix: 'impacts' });
const document = buildOpenApi(demo, INFO);
const paths = document.paths as Paths;

describe('the OpenAPI document', () => {
  it('buildOpenApi makes a valid document', async () => {
    const result = await validate(structuredClone(document) as Parameters<typeof validate>[0]);
    expect(result.valid ? '' : compileErrors(result)).toBe('');
  });

  it('has every route under the prefix of the deployment', () => {
    expect(document).toMatchObject({ openapi: '3.1.0', info: INFO });
    expect(Object.keys(paths)).toHaveLength(demo.routes.length);
    expect(paths['/impacts/entity/{id}']?.get?.operationId).toBe('ixo.entity.v1beta1.Query.Entity');
  });

  it('names every variable of a path, and only those', () => {
    for (const [path, operations] of Object.entries(paths))
      for (const { parameters } of Object.values(operations)) {
        const named = parameters.filter((one) => one.in === 'path').map(({ name }) => `{${name}}`);
        expect(path.match(/\{[^}]+\}/g) ?? []).toEqual(named);
      }
  });

  it('has no reference that leads nowhere, and no operation twice', () => {
    const references = JSON.stringify(document).matchAll(/"\$ref":"([^"]+)"/g);
    for (const [, reference] of references)
      expect(resolve(reference as string, document)).toBeDefined();
    const ids = Object.values(paths).flatMap((one) =>
      Object.values(one).map(({ operationId }) => operationId),
    );
    expect(new Set(ids).size).toBe(ids.length);
  });

  it('buildOpenApi omits routes that are not served', () => {
    const served = new Set(['ixo.token.v1beta1.Query']);
    const { paths } = buildOpenApi(loadSchema(readCompiledProtos(), { served }), INFO);
    expect(Object.keys(paths as Paths).every((path) => path.startsWith('/ixo/token/'))).toBe(true);
  });

  it('describes queries and bodies', () => {
    const { paths } = buildOpenApi(loadSchema(descriptorSet(REQUEST_FACTS)), INFO) as {
      paths: Paths;
    };
    const parameters =
      paths['/test/{packet_id.channel_id}/{packet_id.sequence}/of/{sequences}']?.get?.parameters;
    const query = (parameters ?? []).filter((one) => one.in === 'query').map(({ name }) => name);
    expect(query).toContain('packet_id.port_id');
    expect(query).not.toContain('packet_id.channel_id');
    expect(query).not.toContain('labels');
    expect(parameters).toContainEqual({
      name: 'sequences',
      in: 'path',
      required: true,
      schema: {
        type: 'array',
        items: {
          type: 'string',
          format: 'uint64',
          pattern: '^(0[0-7]{0,20}|[1-9][0-9]{0,18})$',
        },
      },
    });
    expect(paths['/test/send']?.post?.requestBody?.content).toEqual({
      'application/json': { schema: { $ref: '#/components/schemas/test.Request.input' } },
    });
  });
});

describe('the OpenAPI document of unusual bindings', () => {
  const method = { request: 'odd.Request', response: 'odd.Request' };
  const facts: Facts = {
    messages: {
      'odd.Request': [
        { no: 1, name: 'id', type: 'string' },
        { no: 2, name: 'part', type: 'odd.Part' },
      ],
      'odd.Part': [{ no: 1, name: 'text', type: 'string' }],
    },
    services: {
      'odd.Query': {
        Twice: { ...method, path: '/odd/{id}', otherPath: '/odd/other/{id}' },
        Part: { ...method, path: '/odd/part/{id}', verb: 'post', body: 'part' },
        Bare: { ...method, path: '/odd/bare/{id}', verb: 'post' },
      },
    },
  };
  const schema = loadSchema(descriptorSet(facts));
  const odd = buildOpenApi(schema, INFO) as { paths: Paths };

  it('lists a limited number of fields of messages that contain themselves', () => {
    const fields = Array.from({ length: 60 }, (_, i) => ({
      no: i + 1,
      name: `field_${i}`,
      type: 'self.Request',
    }));
    const facts: Facts = {
      messages: { 'self.Request': fields, 'self.Reply': [] },
      services: {
        'self.Query': {
          Get: { request: 'self.Request', response: 'self.Reply', path: '/self' },
        },
      },
    };
    const { paths } = buildOpenApi(loadSchema(descriptorSet(facts)), INFO) as { paths: Paths };
    expect(paths['/self']?.get?.parameters.length).toBeLessThan(5000);
  });

  it('has an operation for each path of a method', () => {
    expect(schema.match('GET', '/odd/other/a')).toMatchObject({ kind: 'route' });
    expect(odd.paths['/odd/{id}']?.get?.operationId).toBe('odd.Query.Twice');
    expect(odd.paths['/odd/other/{id}']?.get?.operationId).toBe('odd.Query.Twice.2');
  });

  it('describes the field that is the body, and no body where there is none', () => {
    expect(odd.paths['/odd/part/{id}']?.post?.requestBody?.content).toEqual({
      'application/json': { schema: { $ref: '#/components/schemas/odd.Part.input' } },
    });
    expect(odd.paths['/odd/bare/{id}']?.post).not.toHaveProperty('requestBody');
  });
});

describe('the schema of a reply', () => {
  const types = Object.keys(SHAPES.messages).filter((type) => type.startsWith('shapes.'));
  const facts: Facts = {
    ...SHAPES,
    services: {
      'shapes.Query': Object.fromEntries(
        types.map((type) => [
          type.slice(7),
          { request: 'test.Empty', response: type, path: `/${type.slice(7)}` },
        ]),
      ),
    },
  };
  const schema = loadSchema(descriptorSet(facts));
  const described = buildOpenApi(schema, INFO) as { paths: Paths };

  it.each(types)('fits what is printed: %s', (type) => {
    const route = schema.findRoute(`/shapes.Query/${type.slice(7)}`);
    const random = new RandomWire(facts, new RandomSource(7));
    const content =
      described.paths[`/${type.slice(7)}`]?.get?.responses[200]?.content['application/json'];
    for (let i = 0; i < 300; i += 1) {
      const json = route?.write(random.message(type).finish()).toString() ?? '';
      expect(misfit(JSON.parse(json), content?.schema ?? {}, described), json).toBeUndefined();
    }
  });
});
