import type { INestApplication } from '@nestjs/common';
import { DocumentBuilder, type OpenAPIObject, SwaggerModule } from '@nestjs/swagger';
import { ErrorBody, requestHeaders } from '@sibyl/protocol';
import { z } from 'zod';
import type { OracleIdentity } from '../auth/oracle-identity.js';
import type { PublicRoutes } from '../auth/public-routes.js';
import type { HostFacts } from '../health/host-facts.js';
import { completeOperation } from './complete-operation.js';

interface ApiDocumentParts {
  readonly oracle: OracleIdentity;
  readonly facts: HostFacts;
  readonly publicRoutes: PublicRoutes;
}

/** Serves Swagger UI at `/docs` and the OpenAPI document below it, made on first use. */
export function serveApiDocument(app: INestApplication, parts: ApiDocumentParts): void {
  SwaggerModule.setup('docs', app, () => createApiDocument(app, parts), {
    jsonDocumentUrl: 'docs/openapi.json',
    yamlDocumentUrl: 'docs/openapi.yaml',
    customSiteTitle: `${parts.oracle.name} interface`,
    swaggerOptions: { persistAuthorization: false, validatorUrl: null },
  });
}

function createApiDocument(
  app: INestApplication,
  { oracle, facts, publicRoutes }: ApiDocumentParts,
): OpenAPIObject {
  const head = new DocumentBuilder()
    .setOpenAPIVersion('3.1.0')
    .setTitle(oracle.name)
    .setVersion(facts.version)
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
  const document = SwaggerModule.createDocument(app, head, {
    standardSchemaConverter: (schema, { schemaType }) => toComponents(schema, schemaType),
    operationIdFactory: (controller, method) => `${controller.replace('Controller', '')}.${method}`,
  });
  for (const [path, operations] of Object.entries(document.paths)) {
    for (const [method, operation] of Object.entries(operations))
      completeOperation(operation, { path, method, publicRoutes });
  }
  const errorSchemas = toComponents(ErrorBody, 'output')?.components;
  const schemas = { ...document.components?.schemas, ...errorSchemas };
  return { ...document, components: { ...document.components, schemas } } as OpenAPIObject;
}

/** A schema with an id becomes a component and a reference to it. */
function toComponents(schema: unknown, io: 'input' | 'output') {
  if (!(schema instanceof z.ZodType)) return undefined;
  const { $schema: _, $defs: components = {}, ...inline } = z.toJSONSchema(schema, { io });
  return { schema: inline, components };
}
