import { type CanActivate, type ExecutionContext, Injectable } from '@nestjs/common';
import { Reflector } from '@nestjs/core';
import { PublicRoutes } from '@sibyl/plugin-kit/rules';
import type { Response } from 'express';
import { Authenticator } from './authenticator.js';
import { credentialsOf } from './credentials.js';
import type { OracleRequest } from './oracle-request.js';
import { proveCaller } from './prove-caller.js';
import { PUBLIC_ROUTE } from './public-route.js';
import { RateLimits } from './rate-limits.js';

/** Lets a request in only with a proven caller; public routes do not even parse credentials. */
@Injectable()
export class UcanGuard implements CanActivate {
  constructor(
    private readonly reflector: Reflector,
    private readonly publicRoutes: PublicRoutes,
    private readonly authenticator: Authenticator,
    private readonly limits: RateLimits,
  ) {}

  async canActivate(context: ExecutionContext): Promise<boolean> {
    if (context.getType() !== 'http') return true;
    const request = context.switchToHttp().getRequest<OracleRequest>();
    const response = context.switchToHttp().getResponse<Response>();
    const { authenticator, limits } = this;
    const { ip: address, isCounted } = request;
    // From here on the guard counts it.
    request.isCounted = true;
    if (this.isPublic(context)) {
      // Where nobody reads credentials, bringing some spares nobody the limit.
      if (!isCounted) limits.takeAnonymous(address, response);
      return true;
    }
    const credentials = credentialsOf(request.headers);
    request.caller = await proveCaller(
      { authenticator, limits },
      { credentials, address, headers: response, isCounted },
    );
    return true;
  }

  private isPublic(context: ExecutionContext): boolean {
    const targets = [context.getHandler(), context.getClass()];
    const { method, route } = context.switchToHttp().getRequest<OracleRequest>();
    return (
      this.reflector.getAllAndOverride<boolean>(PUBLIC_ROUTE, targets) ||
      this.publicRoutes.includes(method, String(route?.path))
    );
  }
}
