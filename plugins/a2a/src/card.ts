import {
  A2A_PROTOCOL_VERSION,
  type AgentCard,
  type AgentSkill,
  type SecurityScheme,
} from '@a2a-js/sdk';
import type { Surface, SurfacePlugin } from '@sibyl/plugin-kit';

interface CardDeps {
  readonly surface: Pick<Surface, 'listPlugins'>;
  readonly publicUrl: string;
  readonly name: string;
  readonly description: string;
}

const VERSION = '0.1.0';
const TEXT = 'text/plain';
const JSON_TYPE = 'application/json';

/** Describes the oracle to other agents: where it is, what it can do, and how to authenticate. */
export async function buildCard(deps: CardDeps): Promise<AgentCard> {
  const { surface, publicUrl, name, description } = deps;
  const url = `${publicUrl}/a2a`;
  const binding = { url, tenant: '', protocolVersion: A2A_PROTOCOL_VERSION };
  return {
    name,
    description: description || `${name} answers questions and does tasks for its users.`,
    supportedInterfaces: [
      { ...binding, protocolBinding: 'JSONRPC' },
      { ...binding, protocolBinding: 'HTTP+JSON' },
    ],
    provider: undefined,
    version: VERSION,
    documentationUrl: `${publicUrl}/docs`,
    capabilities: {
      streaming: true,
      pushNotifications: true,
      extensions: [],
      extendedAgentCard: false,
    },
    securitySchemes: SCHEMES,
    // Any of them.
    securityRequirements: Object.keys(SCHEMES).map((scheme) => {
      return { schemes: { [scheme]: { list: [] } } };
    }),
    defaultInputModes: [TEXT, JSON_TYPE, 'application/octet-stream'],
    defaultOutputModes: [TEXT],
    skills: [CONVERSATION, ...(await surface.listPlugins()).map(toSkill)],
    signatures: [],
  };
}

const SCHEMES: Readonly<Record<string, SecurityScheme>> = {
  accessKey: toBearer('An access key of a user of this oracle', 'access key'),
  accessKeyHeader: {
    scheme: {
      $case: 'apiKeySecurityScheme',
      value: {
        description: 'The same access key in another header',
        location: 'header',
        name: 'x-api-key',
      },
    },
  },
  ucan: toBearer(
    'An invocation that the user signed, as a base64 CAR, with the header X-Auth-Type: ucan',
    'UCAN',
  ),
};

function toBearer(description: string, bearerFormat: string): SecurityScheme {
  const value = { description, scheme: 'Bearer', bearerFormat };
  return { scheme: { $case: 'httpAuthSecurityScheme', value } };
}

const CONVERSATION: AgentSkill = {
  id: 'conversation',
  name: 'Conversation',
  description: 'Answers a message, and remembers the messages of its context.',
  tags: ['chat'],
  examples: [],
  inputModes: [],
  outputModes: [],
  securityRequirements: [],
};

const toSkill = ({ name, title, summary, examples, tags }: SurfacePlugin): AgentSkill => ({
  ...CONVERSATION,
  id: name,
  name: title,
  description: summary,
  tags: tags.length > 0 ? [...tags] : [name],
  examples: [...examples],
});
