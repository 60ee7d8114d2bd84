import {
  type ArgumentMetadata,
  Injectable,
  type PipeTransform,
  RequestMethod,
} from '@nestjs/common';
import { describeIssues, OracleError } from '@sibyl/protocol';
import type { AuthExcludedRoute } from '../plugin.js';

/** Routes opened by plugins and by the `authExcludedRoutes` option. */
export class PublicRoutes {
  private readonly opened: readonly ((method: string, pattern: string) => boolean)[];

  constructor(routes: readonly AuthExcludedRoute[]) {
    this.opened = routes.map(matcherOf);
  }

  /** Compares with the pattern the router matched, never with the path as sent. */
  includes(method: string, pattern: string): boolean {
    return this.opened.some((opens) => opens(method, pattern));
  }
}

const WILDCARD = /\/(\(\.\*\)|\*\w*)$/;

function matcherOf(route: AuthExcludedRoute) {
  const { path, method = RequestMethod.ALL } = typeof route === 'string' ? { path: route } : route;
  const wanted = `/${path.replace(/^\/+|\/+$/g, '')}`;
  const below = WILDCARD.test(wanted) ? wanted.replace(WILDCARD, '/') : undefined;
  return (sentMethod: string, pattern: string): boolean => {
    if (method !== RequestMethod.ALL && RequestMethod[method] !== sentMethod) return false;
    return below === undefined ? pattern === wanted : pattern.startsWith(below);
  };
}

/** Checks every argument against the schema its decorator names; each fault names its field. */
@Injectable()
export class ValidationPipe implements PipeTransform {
  async transform(value: unknown, { schema, type, data }: ArgumentMetadata): Promise<unknown> {
    if (!schema || type === 'custom') return value;
    const result = await schema['~standard'].validate(value);
    if (!result.issues) return result.value;
    const message = describeIssues(result.issues, data ?? type);
    throw new OracleError('validation_failed', { message });
  }
}
