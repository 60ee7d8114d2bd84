import { ModulesContainer } from '@nestjs/core';
import type { NestExpressApplication } from '@nestjs/platform-express';
import { DocumentBuilder, type OpenAPIObject, SwaggerModule } from '@nestjs/swagger';
import { ROUTE_DESCRIPTION } from '@sibyl/plugin-kit';
import { type PublicRoutes } from '@sibyl/plugin-kit/rules';
import { ErrorBody, requestHeaders } from '@sibyl/protocol';
import type { OracleIdentity } from '../../auth/oracle-identity.js';
import { PUBLIC_ROUTE } from '../../auth/public-route.js';
import type { HostFacts } from '../../health/host-facts.js';
import { completeOperation, type RouteFacts } from './complete-operation.js';
import { SchemaComponents } from './schema-components.js';

export interface ApiDocumentParts {
  readonly oracle: OracleIdentity;
  readonly facts: HostFacts;
  readonly publicRoutes: PublicRoutes;
}

/** Describes every route of the running host, plugin routes included. */
export function createApiDocument(
  nest: NestExpressApplication,
  { oracle, facts, publicRoutes }: ApiDocumentParts,
): OpenAPIObject {
  const components = new SchemaComponents();
  const document = SwaggerModule.createDocument(nest, headOf(oracle, facts), {
    standardSchemaConverter: (schema, { schemaType }) => components.convert(schema, schemaType),
    operationIdFactory,
  });
  components.add(ErrorBody, 'output');
  const routes = routeFacts(nest);
  for (const [path, operations] of Object.entries(document.paths)) {
    for (const [method, operation] of Object.entries(operations)) {
      const { isPublic = false, ...route } = routes.get(operation.operationId) ?? {};
      // OpenAPI writes `{id}` where the router writes `:id`.
      const pattern = path.replaceAll(/\{(\w+)\}/g, ':$1');
      const isOpen = isPublic || publicRoutes.includes(method.toUpperCase(), pattern);
      completeOperation(operation, { ...route, path, isPublic: isOpen }, components);
    }
  }
  const schemas = { ...document.components?.schemas, ...components.schemas };
  for (const operation of Object.values(document.paths).flatMap((path) => Object.values(path)))
    relaxBody(operation.requestBody, schemas);
  return { ...document, components: { ...document.components, schemas } } as OpenAPIObject;
}

/** A body whose schema has a default may be left out. */
function relaxBody(body: RequestBody | undefined, schemas: Readonly<Record<string, object>>): void {
  const { $ref = '' } = body?.content?.['application/json']?.schema ?? {};
  const schema = schemas[$ref.replace('#/components/schemas/', '')] ?? {};
  if (body && 'default' in schema) body.required = false;
}

interface RequestBody {
  required?: boolean;
  readonly content?: Readonly<Record<string, { readonly schema?: { readonly $ref?: string } }>>;
}

function headOf(oracle: OracleIdentity, { version }: HostFacts) {
  return new DocumentBuilder()
    .setOpenAPIVersion('3.1.0')
    .setTitle(oracle.name)
    .setVersion(version)
    .setDescription(
      `An oracle: an AI agent whose users sign with their own key. Tokens are meant for \`${oracle.did}\`.`,
    )
    .addSecurity('invocation', {
      type: 'http',
      scheme: 'bearer',
      description: `${requestHeaders.authorization}. Send X-Auth-Type: ucan beside it.`,
    })
    .addSecurity('delegation', {
      type: 'apiKey',
      in: 'header',
      name: 'x-ucan-delegation',
      description: requestHeaders['x-ucan-delegation'],
    })
    .build();
}

const operationIdFactory = (controller: string, method: string) =>
  `${controller.replace('Controller', '')}.${method}`;

/** What the decorators say of each handler, by operation id. */
function routeFacts(nest: NestExpressApplication): Map<string | undefined, RouteFacts> {
  const facts = new Map<string | undefined, RouteFacts>();
  for (const module of nest.get(ModulesContainer).values()) {
    for (const { metatype } of module.controllers.values()) {
      if (typeof metatype !== 'function') continue;
      for (const method of Object.getOwnPropertyNames(metatype.prototype)) {
        const handler = metatype.prototype[method];
        const isPublic = [handler, metatype].some((on) => Reflect.getMetadata(PUBLIC_ROUTE, on));
        const description = Reflect.getMetadata(ROUTE_DESCRIPTION, handler);
        facts.set(operationIdFactory(metatype.name, method), { isPublic, description });
      }
    }
  }
  return facts;
}
